// The sessions, however many: only the rows in view exist.

import { peak, Sparkline, StackedBar } from './chart.js';
import { element, setAttribute, setStyle, setText } from './dom.js';
import { bytes, count, milliseconds, percent, plural, rate } from './format.js';
import { N_SAMPLES, poolTitle } from './model.js';
import { ownerClass } from './tree.js';

const SPARE_ROWS = 4; // above and below those in view
const RANK = { decoding: 0, prefilling: 1, parked: 2, queued: 3, idle: 4 };
const ORDERS = {
  state: (a, b) => RANK[a.state] - RANK[b.state],
  slow: (a, b) => (a.tps_ewma ?? Infinity) - (b.tps_ewma ?? Infinity),
  fast: (a, b) => (b.tps_ewma ?? -1) - (a.tps_ewma ?? -1),
  kv: (a, b) => (b.marginal_kv_bytes ?? 0) - (a.marginal_kv_bytes ?? 0),
};

export class Sessions {
  #model = null;
  #shown = []; // all that match, in order
  #rows = []; // elements, reused as the list scrolls

  constructor() {
    this.scroll = document.getElementById('session-scroll');
    this.rows = document.getElementById('session-rows');
    this.count = document.getElementById('sessions-count');
    this.empty = document.getElementById('sessions-empty');
    this.spanTitle = document.getElementById('span-title');
    this.find = document.getElementById('find');
    this.state = document.getElementById('state');
    this.order = document.getElementById('order');
    for (const control of [this.find, this.state, this.order]) {
      control.addEventListener('input', () => {
        this.scroll.scrollTop = 0;
        this.update(this.#model);
      });
    }
    this.find.form.addEventListener('submit', (event) => event.preventDefault());
    this.scroll.addEventListener('scroll', () => this.#draw(), { passive: true });
    window.addEventListener('resize', () => this.#draw());
  }

  update(model) {
    this.#model = model;
    const wanted = this.find.value.trim().toLowerCase();
    this.#shown = [...model.sessions.values()]
      .filter((session) => this.#matches(session, wanted))
      .sort((a, b) => ORDERS[this.order.value](a, b) || (a.key < b.key ? -1 : 1));
    const total = model.sessions.size;
    const shown = this.#shown.length;
    setText(this.count, shown === total ? plural(total, 'session') : `${count(shown)} of ${count(total)}`);
    setAttribute(this.empty, 'hidden', shown > 0);
    setText(this.empty, total === 0 ? 'No sessions.' : 'No session matches.');
    setAttribute(this.scroll, 'hidden', shown === 0);
    setAttribute(this.scroll, 'aria-rowcount', shown + 1);
    setText(this.spanTitle, `Tokens per second${spanText(model.times)}`);
    this.#draw();
  }

  #matches(session, wanted) {
    const state = this.state.value;
    if (state === 'under' ? !this.#model.isUnderFloor(session) : state && session.state !== state) {
      return false;
    }
    if (wanted === '') return true;
    const pool = this.#model.pools.get(session.pool_id);
    const text = `${session.session_id} ${session.pool_id ?? ''} ${pool?.name ?? ''}`;
    return text.toLowerCase().includes(wanted);
  }

  #draw() {
    if (this.#model === null) return;
    const height = parseFloat(getComputedStyle(this.scroll).getPropertyValue('--row'));
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / height) - SPARE_ROWS);
    const visible = Math.ceil(this.scroll.clientHeight / height) + 2 * SPARE_ROWS;
    const part = this.#shown.slice(first, first + visible);
    setStyle(this.rows, 'height', `${height * this.#shown.length}px`);
    while (this.#rows.length > part.length) this.#rows.pop().node.remove();
    while (this.#rows.length < part.length) {
      const row = new Row();
      this.#rows.push(row);
      this.rows.append(row.node);
    }
    let max = 1;
    for (const session of this.#model.sessions.values()) max = peak(session.history, max);
    part.forEach((session, i) => {
      setStyle(this.#rows[i].node, 'transform', `translateY(${height * (first + i)}px)`);
      setAttribute(this.#rows[i].node, 'aria-rowindex', first + i + 2);
      this.#rows[i].update(session, this.#model, max);
    });
  }
}

class Row {
  constructor() {
    const cell = (name, ...children) => element('span', { role: 'cell', class: name }, ...children);
    this.name = element('span', { class: 'name' });
    this.pool = element('span', { class: 'id' });
    this.state = element('span', { class: 'badge' });
    this.chart = new Sparkline();
    this.rate = cell('number rate');
    this.context = new StackedBar();
    this.contextText = element('span', { class: 'muted' });
    this.kv = cell('number');
    this.ttft = cell('number ttft');
    this.node = element(
      'div',
      { class: 'session', role: 'row' },
      cell('who', this.name, this.pool),
      cell('state', this.state),
      cell('chart', this.chart.node),
      this.rate,
      cell('context', this.context.node, this.contextText),
      this.kv,
      this.ttft,
    );
  }

  update(session, model, max) {
    const pool = model.pools.get(session.pool_id) ?? null;
    const floor = model.floor(session.pool_id);
    setText(this.name, session.session_id);
    setAttribute(this.name, 'title', session.session_id);
    setText(this.pool, pool ? poolTitle(pool) : poolText(session));
    setAttribute(this.pool, 'class', `id ${pool ? `dot ${ownerClass(pool, model)}` : ''}`);
    setText(this.state, session.state);
    setAttribute(this.state, 'class', `badge state-${session.state}`);
    this.chart.update(session.history, { max: Math.max(max, 1.2 * (floor ?? 0)), floor });
    const under = model.isUnderFloor(session);
    setAttribute(this.node, 'data-under', under);
    setText(this.rate, rate(session.tps_ewma));
    setAttribute(this.rate, 'title', floor === null ? null : `the floor is ${rate(floor)}`);
    this.context.update([['fill', session.ctx_used / session.ctx_total]]);
    setText(this.contextText, percent(session.ctx_used, session.ctx_total));
    setAttribute(
      this.contextText,
      'title',
      `${count(session.ctx_used)} of ${count(session.ctx_total)} tokens`,
    );
    setText(this.kv, bytes(session.marginal_kv_bytes));
    setText(this.ttft, milliseconds(session.ttft_ms));
  }
}

function poolText(session) {
  return session.pool_id == null ? 'no pool' : `${session.pool_id}, released`;
}

/** How long the charts look back, once it is known. */
function spanText(times) {
  const newest = times[N_SAMPLES - 1];
  const oldest = times.find((time) => !Number.isNaN(time));
  const seconds = Math.round((newest - oldest) / 1000);
  return seconds > 0 ? `, last ${seconds} s` : '';
}
