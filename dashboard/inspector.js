// The selected pool: its figures, its policy, and what can be done with it.

import { element, KeyedChildren, setAttribute, setText } from './dom.js';
import { bytes, clock, count, percent, plural, rate } from './format.js';
import { poolTitle } from './model.js';

/** Each action: what its dialog says, and what it sends. */
export const ACTIONS = {
  pin: {
    label: 'Pin',
    verb: 'Pin',
    explain: () => 'A pinned pool is never evicted, whether it is used or not.',
    send: (api, id) => api.post(`pools/${id}/pin`, {}),
  },
  unpin: {
    label: 'Unpin',
    verb: 'Unpin',
    explain: () => 'Once nobody pins or uses it, the pool may be evicted.',
    send: (api, id) => api.post(`pools/${id}/unpin`, {}),
  },
  evict: {
    label: 'Evict',
    verb: 'Evict',
    explain: (pool) =>
      `Its ${bytes(pool.own_kv_bytes)} leave the cache. Its ${count(pool.prefix_len)} tokens stay, ` +
      'and are computed again when somebody uses the pool.',
    send: (api, id) => api.post(`pools/${id}/evict`, {}),
  },
  release: {
    label: 'Release…',
    verb: 'Release',
    danger: true,
    explain: (pool) =>
      `Drops ${pool.refs > 1 ? `one of its ${count(pool.refs)} references` : 'its last reference'}. ` +
      'Without references the pool goes after its grace time. Attached sessions go on undisturbed.',
    options: (pool) => [
      ['force', 'At once, without grace time'],
      ...(pool.children.length > 0 ? [['subtree', 'With all pools below it']] : []),
    ],
    send: (api, id, chosen) => {
      const query = chosen.map((name) => `${name}=1`).join('&');
      return api.delete(`pools/${id}${query && `?${query}`}`);
    },
  },
};

export class Inspector {
  #pool = null;

  /** `act(action, pool)` is asked for when a button is pressed. */
  constructor(act) {
    this.node = document.getElementById('inspector');
    this.title = element('h3');
    this.subtitle = element('p', { class: 'muted' });
    this.facts = element('dl', { class: 'facts' });
    this.rows = new KeyedChildren(this.facts, makeFact, updateFact);
    // One button pins and unpins, so that it keeps the focus when the pool changes.
    this.buttons = ['pin', 'evict', 'release'].map((name) => {
      const button = element('button', { type: 'button' });
      button.addEventListener('click', () => act(button.dataset.action, this.#pool));
      setAction(button, name);
      return button;
    });
    const actions = element('div', { class: 'actions' }, ...this.buttons);
    this.node.append(this.title, this.subtitle, this.facts, actions);
  }

  update(model, poolId) {
    const pool = model.pools.get(poolId);
    this.#pool = pool ?? null;
    setAttribute(this.node, 'hidden', pool === undefined);
    if (pool === undefined) return;
    setText(this.title, poolTitle(pool));
    setText(this.subtitle, `${pool.pool_id} · prefix ${pool.prefix_hash}`);
    this.rows.set(facts(pool, model));
    setAction(this.buttons[0], pool.pinned ? 'unpin' : 'pin');
  }

  focus() {
    this.buttons[0].focus();
  }
}

function setAction(button, name) {
  const { label, danger } = ACTIONS[name];
  setText(button, label);
  setAttribute(button, 'data-action', name);
  setAttribute(button, 'class', danger ? 'danger' : 'quiet');
}

function facts(pool, model) {
  const parent = model.pools.get(pool.parent);
  const governor = model.governor(pool.pool_id);
  const list = [
    ['Prefix', `${count(pool.prefix_len)} tokens`],
    ['Parent', parent ? `${poolTitle(parent)}, from ${count(pool.branch_pos)}` : 'none, a root'],
    ['Shared', `${count(pool.shared_len)} tokens with the parent`],
    ['Own', `${count(pool.own_len)} tokens, ${bytes(pool.own_kv_bytes)}`],
    ['Subtree', `${bytes(pool.subtree_kv_bytes)} with all below and its sessions`],
    ['Saved', `${bytes(pool.dedup_bytes)} that others need not hold`],
    ['References', `${count(pool.refs)}${pool.n_pins ? `, ${plural(pool.n_pins, 'pin')}` : ''}`],
    ['Attaches', attachesText(pool)],
    ['Last used', clock(pool.last_access_ts)],
    ['Policy', governor === null ? 'none' : policyText(governor, pool)],
  ];
  return list.map(([name, text]) => [name, { name, text }]);
}

function attachesText({ queries, hits }) {
  return queries > 0 ? `${count(queries)}, ${percent(hits, queries)} shared` : 'none yet';
}

function policyText(governor, pool) {
  const { mode, target_tps_per_session: target } = governor.admission;
  const from = governor === pool ? '' : `, from ${poolTitle(governor)}`;
  return `${mode}, ${rate(target)} t/s per session${from}`;
}

function makeFact() {
  return element('div', {}, element('dt'), element('dd'));
}

function updateFact(node, { name, text }) {
  setText(node.firstChild, name);
  setText(node.lastChild, text);
}
