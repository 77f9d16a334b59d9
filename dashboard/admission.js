// What the server would say to one more session of each pool with a policy, and why.

import { StackedBar } from './chart.js';
import { element, KeyedChildren, setAttribute, setText } from './dom.js';
import { count, milliseconds, plural, rate } from './format.js';
import { poolTitle } from './model.js';

export class Admission {
  constructor(onSelect) {
    this.empty = document.getElementById('verdicts-empty');
    this.cards = new KeyedChildren(
      document.getElementById('verdicts'),
      ({ pool }) => new Card(pool, onSelect).node,
      (node, { pool, verdict }) => node.card.update(pool, verdict),
    );
  }

  update(model) {
    const governed = governedPools(model);
    this.cards.set(
      governed.map((pool) => [pool.pool_id, { pool, verdict: model.verdicts.get(pool.pool_id) }]),
    );
    setAttribute(this.empty, 'hidden', governed.length > 0);
  }
}

/** Pools with a policy of their own. */
export function governedPools(model) {
  return [...model.pools.values()].filter((pool) => pool.admission !== null);
}

class Card {
  constructor(pool, onSelect) {
    this.name = element('button', {
      type: 'button',
      class: 'link',
      onclick: () => onSelect(pool.pool_id),
    });
    this.answer = element('span', { class: 'badge' });
    this.reason = element('p', { class: 'reason' });
    this.gauge = new StackedBar('gauge');
    this.floor = element('span', { class: 'floor-mark' });
    this.gauge.node.setAttribute('aria-hidden', 'true');
    this.numbers = element('p', { class: 'numbers' });
    this.notes = element('p', { class: 'note' });
    this.node = element(
      'article',
      { class: 'verdict' },
      element('div', { class: 'card-head' }, element('h3', {}, this.name), this.answer),
      this.reason,
      element('div', { class: 'gauge-wrap' }, this.gauge.node, this.floor),
      this.numbers,
      this.notes,
    );
    this.node.card = this;
  }

  update(pool, verdict) {
    const policy = pool.admission;
    setText(this.name, poolTitle(pool));
    setText(this.answer, verdict === undefined ? 'asking' : answer(verdict));
    setAttribute(this.answer, 'class', `badge ${level(verdict)}`);
    setText(this.reason, reason(verdict, policy));
    const target = policy.target_tps_per_session;
    const mean = verdict?.mean_active_tps ?? null;
    const projected = verdict?.projected_mean_tps_if_admitted ?? null;
    this.gauge.update([
      [projected !== null && projected < target ? 'fill bad' : 'fill', (projected ?? 0) / (2 * target)],
      ['fill lost', Math.max(0, (mean ?? 0) - (projected ?? 0)) / (2 * target)],
    ]);
    setText(
      this.numbers,
      `now ${rate(mean)}, with one more ${rate(projected)}, floor ${rate(target)} tokens/s`,
    );
    setText(this.notes, notes(verdict, policy));
  }
}

function answer(verdict) {
  if (!verdict.can_admit) return verdict.settling ? 'not yet' : 'no';
  return verdict.guaranteed ? 'yes, guaranteed' : 'yes';
}

function level(verdict) {
  if (verdict === undefined) return '';
  if (verdict.can_admit) return 'good';
  return verdict.settling ? 'busy' : 'bad';
}

function reason(verdict, policy) {
  if (verdict === undefined) return '';
  if (verdict.reason) return verdict.reason;
  return `nothing speaks against it (${policy.mode})`;
}

function notes(verdict, policy) {
  const list = [`${policy.mode}, when full: ${policy.on_saturation}`];
  if (verdict === undefined) return list[0];
  if (verdict.headroom !== null) list.push(`room for ${count(verdict.headroom)} more`);
  list.push(plural(verdict.n_pool_sessions, 'session'));
  if (verdict.n_idle_sessions > 0) list.push(`${count(verdict.n_idle_sessions)} idle`);
  if (verdict.n_warming > 0) list.push(`${count(verdict.n_warming)} warming up`);
  if (verdict.queue_len > 0) list.push(`${count(verdict.queue_len)} waiting`);
  if (verdict.settling) list.push(`settles within ${milliseconds(verdict.settle_remaining_ms)}`);
  return list.join(' · ');
}
