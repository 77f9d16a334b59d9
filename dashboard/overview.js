// The row of figures at the top.

import { peak, Sparkline, StackedBar } from './chart.js';
import { element, setAttribute, setText } from './dom.js';
import { bytes, count, percent, plural, rate } from './format.js';

export class Overview {
  constructor() {
    this.throughput = new Tile('tile-throughput', new Sparkline());
    this.mean = new Tile('tile-mean', new Sparkline());
    this.sessions = new Tile('tile-sessions', new StackedBar('thick'));
    this.cells = new Tile('tile-cells', new StackedBar('thick'));
    this.saved = new Tile('tile-saved', new StackedBar('thick'));
  }

  update(model) {
    this.#updateRates(model);
    this.#updateSessions(model);
    this.#updateCells(model);
  }

  #updateRates(model) {
    const { tps } = model;
    const active = plural(tps.n_active ?? 0, 'stream');
    const warming = tps.n_warming ? `, ${count(tps.n_warming)} warming up` : '';
    this.throughput.set(rate(tps.aggregate_tps), 'tokens/s', active + warming);
    this.throughput.chart.update(model.aggregate, { max: peak(model.aggregate, 1) });

    const policies = [...model.pools.values()].map((pool) => pool.admission).filter(Boolean);
    const floors = new Set(policies.map((policy) => policy.target_tps_per_session));
    const floor = floors.size === 1 ? [...floors][0] : null;
    const under = [...model.sessions.values()].filter((s) => model.isUnderFloor(s)).length;
    const note = floors.size === 0 ? 'no floor is set' : `${count(under)} under the floor`;
    this.mean.set(rate(tps.mean_active_tps), 'tokens/s', note, under > 0 ? 'bad' : '');
    this.mean.chart.update(model.mean, { max: peak(model.mean, 1.3 * (floor ?? 1)), floor });
  }

  #updateSessions(model) {
    const counts = model.countStates();
    const total = model.sessions.size;
    const others = ['prefilling', 'queued', 'parked', 'idle']
      .filter((state) => counts[state] > 0)
      .map((state) => `${count(counts[state])} ${state}`);
    this.sessions.set(count(counts.decoding), 'decoding', others.join(', ') || 'no others');
    this.sessions.chart.update(
      Object.entries(counts).map(([state, n]) => [`state-${state}`, n / (total || 1)]),
    );
  }

  #updateCells(model) {
    const { head } = model;
    const used = head.kv_cells_used ?? 0;
    const total = head.kv_cells_total ?? 0;
    const level = used > 0.9 * total ? 'bad' : used > 0.75 * total ? 'warn' : '';
    const cells = `${count(used)} of ${count(total)} cells`;
    const sequences = `${count(head.seq_ids_used)} of ${count(head.seq_ids_max)} sequences`;
    this.cells.set(percent(used, total), 'in use', cells, total > 0 ? level : '');
    this.cells.chart.update([[`fill ${level}`, used / total]]);
    setAttribute(this.cells.node, 'title', `${cells}, ${sequences}`);

    let saved = 0;
    for (const pool of model.pools.values()) saved += pool.dedup_bytes;
    const held = used * (head.bytes_per_cell ?? 0);
    const [figure, unit] = bytes(saved).split(' ');
    this.saved.set(figure, unit ?? '', `${bytes(held)} held in place of ${bytes(held + saved)}`);
    const whole = held + saved || 1;
    this.saved.chart.update([
      ['fill', held / whole],
      ['fill saved', saved / whole],
    ]);
  }
}

class Tile {
  constructor(id, chart) {
    this.node = document.getElementById(id);
    this.chart = chart;
    this.figure = element('span');
    this.unit = element('span', { class: 'unit' });
    this.note = element('p', { class: 'note' });
    this.node.append(
      element('p', { class: 'figure' }, this.figure, ' ', this.unit),
      this.chart.node,
      this.note,
    );
  }

  set(figure, unit, note, level = '') {
    setText(this.figure, figure);
    setText(this.unit, unit);
    setText(this.note, note);
    setAttribute(this.note, 'class', `note ${level}`);
  }
}
