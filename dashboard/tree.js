// The tree of pools: a table whose rows open and close, and of which one is selected.

import { StackedBar } from './chart.js';
import { element, KeyedChildren, setAttribute, setStyle, setText } from './dom.js';
import { bytes, count, percent, rate } from './format.js';
import { poolTitle } from './model.js';

export class Tree {
  #collapsed = new Set();
  #rows = [];
  #model = null;

  /** `onSelect(poolId)` is told when another row is selected, `onEnter()` of the Enter key. */
  constructor(onSelect, onEnter) {
    this.selected = null;
    this.onSelect = onSelect;
    this.onEnter = onEnter;
    this.body = document.getElementById('tree');
    this.empty = document.getElementById('tree-empty');
    this.children = new KeyedChildren(this.body, (row) => this.#make(row), updateRow);
    this.body.addEventListener('keydown', (event) => this.#key(event));
  }

  select(poolId, { focus = false } = {}) {
    if (poolId !== this.selected) {
      this.selected = poolId;
      this.onSelect(poolId);
    }
    if (this.#model !== null) this.update(this.#model);
    if (focus) this.children.get(poolId)?.focus();
  }

  update(model) {
    this.#model = model;
    this.#rows = model.treeRows(this.#collapsed);
    if (!model.pools.has(this.selected)) {
      this.selected = this.#rows[0]?.pool.pool_id ?? null;
      this.onSelect(this.selected);
    }
    const largest = Math.max(1, ...this.#rows.map((row) => extent(row.pool, model)));
    const focusable = this.#rows.some((row) => row.pool.pool_id === this.selected)
      ? this.selected
      : this.#rows[0]?.pool.pool_id;
    this.children.set(
      this.#rows.map((row) => {
        const id = row.pool.pool_id;
        const expanded = row.hasChildren ? !this.#collapsed.has(id) : null;
        const selected = id === this.selected;
        return [id, { ...row, model, largest, expanded, selected, focusable: id === focusable }];
      }),
    );
    setAttribute(this.empty, 'hidden', this.#rows.length > 0);
  }

  #make(row) {
    const id = row.pool.pool_id;
    const node = element('tr', { role: 'row', onclick: () => this.select(id, { focus: true }) });
    const cell = (name, ...children) => element('td', { role: 'gridcell', class: name }, ...children);
    const cells = {
      twist: element('span', { class: 'twist', 'aria-hidden': 'true' }),
      swatch: element('span', { class: 'swatch', 'aria-hidden': 'true' }),
      name: element('span', { class: 'name' }),
      id: element('span', { class: 'id' }),
      state: cell('state'),
      bar: new StackedBar('kv'),
      shared: cell('number'),
      own: cell('number'),
      marginal: cell('number'),
      subtree: cell('number'),
      sessions: cell('number'),
      tps: cell('number'),
    };
    node.cells_ = cells;
    node.badges = new KeyedChildren(
      cells.state,
      () => element('span', {}),
      (badge, [text, kind]) => {
        setText(badge, text);
        setAttribute(badge, 'class', `badge ${kind}`);
      },
    );
    cells.twist.addEventListener('click', (event) => {
      event.stopPropagation();
      this.#toggle(id);
    });
    node.append(
      cell('title', cells.twist, cells.swatch, cells.name, cells.id),
      cells.state,
      cell('kv', cells.bar.node),
      ...['shared', 'own', 'marginal', 'subtree', 'sessions', 'tps'].map((name) => {
        setAttribute(cells[name], 'data-label', LABELS[name]);
        return cells[name];
      }),
    );
    return node;
  }

  #toggle(id) {
    if (!this.#collapsed.delete(id)) this.#collapsed.add(id);
    this.update(this.#model);
  }

  #key(event) {
    const at = this.#rows.findIndex((row) => row.pool.pool_id === this.selected);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const row = this.#rows[at];
    const id = row.pool.pool_id;
    const isOpen = row.hasChildren && !this.#collapsed.has(id);
    const go = (place) => {
      const target = this.#rows[Math.max(0, Math.min(this.#rows.length - 1, place))];
      this.select(target.pool.pool_id, { focus: true });
    };
    const actions = {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      Home: () => go(0),
      End: () => go(this.#rows.length - 1),
      ArrowRight: () => (row.hasChildren && !isOpen ? this.#toggle(id) : isOpen && go(at + 1)),
      ArrowLeft: () => {
        if (isOpen) this.#toggle(id);
        else if (row.level > 1) this.select(row.pool.parent, { focus: true });
      },
      Enter: () => this.onEnter(),
    };
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }
}

const LABELS = {
  shared: 'Shared',
  own: 'Own',
  marginal: 'Marginal',
  subtree: 'Subtree',
  sessions: 'Sessions',
  tps: 't/s',
};

function updateRow(node, { pool, level, place, siblings, expanded, selected, focusable, ...rest }) {
  const { model, largest } = rest;
  const cells = node.cells_;
  setAttribute(node, 'aria-level', level);
  setAttribute(node, 'aria-posinset', place);
  setAttribute(node, 'aria-setsize', siblings);
  setAttribute(node, 'aria-expanded', expanded === null ? null : String(expanded));
  setAttribute(node, 'aria-selected', String(selected));
  setAttribute(node, 'tabindex', focusable ? 0 : -1);
  setAttribute(node, 'data-pool', pool.pool_id);
  setStyle(node, '--level', String(level - 1));
  setAttribute(cells.swatch, 'class', `swatch ${ownerClass(pool, model)}`);
  setText(cells.name, poolTitle(pool));
  setText(cells.id, pool.name === null ? '' : pool.pool_id);
  node.badges.set(badges(pool).map((badge) => [badge[0].replace(/\d+/g, ''), badge]));

  const perCell = model.head.bytes_per_cell ?? 0;
  const sessions = model.sessionsOf(pool.pool_id);
  const marginal = sessions.reduce((sum, session) => sum + (session.marginal_kv_bytes ?? 0), 0);
  const shared = pool.shared_len * perCell;
  const unit = largest * perCell || 1;
  cells.bar.update([
    ['part-shared', shared / unit],
    ['part-own', pool.own_kv_bytes / unit],
    ['part-marginal', marginal / unit],
  ]);
  setText(cells.shared, bytes(shared));
  setText(cells.own, bytes(pool.own_kv_bytes));
  setText(cells.marginal, bytes(marginal));
  setText(cells.subtree, bytes(pool.subtree_kv_bytes));
  setText(cells.sessions, count(sessions.length));
  const mean = meanRate(sessions);
  setText(cells.tps, rate(mean));
  const floor = model.floor(pool.pool_id);
  setAttribute(cells.tps, 'data-under', mean !== null && floor !== null && mean < floor);
}

/** Mean tokens per second of those that decode with a settled rate; null: none does. */
export function meanRate(sessions) {
  const rates = sessions.map((session) => session.tps_ewma).filter((tps) => tps != null);
  return rates.length > 0 ? rates.reduce((sum, tps) => sum + tps, 0) / rates.length : null;
}

/** One of the eight colours of owners; a pool keeps its own as long as it lives. */
export function ownerClass(pool, model) {
  return pool === null ? 'owner-none' : `owner-${(pool.pool_id - model.head.boot_id) % 8}`;
}

/** What is to be said of a pool, as [text, kind] pairs. */
export function badges(pool) {
  const list = [];
  if (pool.residency === 'materializing') {
    const total = pool.prefix_len - pool.shared_len;
    list.push([`computing ${percent(pool.n_prefilled, total)}`, 'busy']);
  } else {
    list.push([pool.residency, pool.residency === 'resident' ? 'good' : 'idle']);
  }
  if (pool.pinned) list.push(['pinned', 'accent']);
  if (pool.orphaned_pin) list.push(['pinned for nobody', 'warn']);
  else if (pool.auto_pinned) list.push(['in use', '']);
  if (pool.refs === 0) list.push(['released', 'warn']);
  return list;
}

// Cells of the longest bar: what the pool shares, owns, and its sessions have added.
function extent(pool, model) {
  const marginal = model
    .sessionsOf(pool.pool_id)
    .reduce((sum, session) => sum + (session.suffix_n_tokens ?? 0), 0);
  return pool.shared_len + pool.own_kv_bytes / (model.head.bytes_per_cell || 1) + marginal;
}
