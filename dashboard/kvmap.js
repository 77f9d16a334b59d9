// Who owns the cells: the whole cache as one bar in the order of the tree, and a list of owners.

import { element, KeyedChildren, setAttribute, setStyle, setText } from './dom.js';
import { bytes, count, percent } from './format.js';
import { poolTitle } from './model.js';
import { ownerClass } from './tree.js';

const MOST_LISTED = 24;

export class KvMap {
  /** `onSelect(poolId)` is told when an owner is chosen. */
  constructor(onSelect) {
    this.sum = document.getElementById('map-sum');
    this.bar = document.getElementById('map-cache');
    this.parts = new KeyedChildren(this.bar, () => element('span'), updatePart);
    this.list = new KeyedChildren(
      document.getElementById('map-owners'),
      (owner) => makeOwner(owner, onSelect),
      updateOwner,
    );
  }

  update(model) {
    const { head } = model;
    const total = head.kv_cells_total || 1;
    const used = head.kv_cells_used ?? 0;
    const owners = model.owners().map((owner) => ({ ...owner, model }));
    const span = head.kv_span == null ? '' : `, the highest at ${count(head.kv_span)}`;
    const free = `${count(Math.max(0, total - used))} free`;
    // Owners that would be too thin to be seen are shown larger: the bar is then what is in use.
    const isSparse = used < 0.2 * total;
    const whole = isSparse ? used || 1 : total;
    const scale = isSparse && used > 0 ? '; the bar shows those in use' : '';
    setText(this.sum, `${count(used)} of ${count(total)} cells in use${span}, ${free}${scale}`);
    this.parts.set(owners.map((owner) => [owner.key, { ...owner, share: owner.cells / whole }]));

    this.list.set(listed(owners, model).map((entry) => [entry.key, entry]));
  }
}

function updatePart(node, { kind, pool, cells, share, model }) {
  setAttribute(node, 'class', `${ownerClass(pool, model)} of-${kind}`);
  setAttribute(node, 'title', `${ownerTitle(kind, pool)}: ${count(cells)} cells`);
  setStyle(node, 'width', `${(100 * share).toFixed(3)}%`);
}

/** One entry per pool, with what its sessions have added; the smallest ones as one. */
function listed(owners, model) {
  const entries = new Map();
  for (const { key, kind, pool, cells } of owners) {
    const name = pool === null ? key : `${pool.pool_id}`;
    const entry = entries.get(name) ?? { key: name, kind, pool, model, own: 0, added: 0 };
    entry[kind === 'sessions' ? 'added' : 'own'] += cells;
    entries.set(name, entry);
  }
  const all = [...entries.values()];
  if (all.length <= MOST_LISTED) return all;
  const size = (entry) => entry.own + entry.added;
  const least = all.map(size).sort((a, b) => b - a)[MOST_LISTED - 1];
  const large = all.filter((entry) => size(entry) >= least).slice(0, MOST_LISTED);
  const rest = all.length - large.length;
  return [...large, { key: 'rest', kind: 'rest', pool: null, model, own: 0, added: 0, rest }];
}

function makeOwner({ pool }, onSelect) {
  const inside = [
    element('span', { class: 'swatch' }),
    element('span', { class: 'name' }),
    element('span', { class: 'muted number' }),
  ];
  if (pool === null) return element('li', {}, element('div', {}, ...inside));
  const choose = () => onSelect(pool.pool_id);
  return element('li', {}, element('button', { type: 'button', onclick: choose }, ...inside));
}

function updateOwner(node, { kind, pool, own, added, rest, model }) {
  const [swatch, name, figure] = node.firstChild.children;
  setAttribute(swatch, 'class', `swatch ${ownerClass(pool, model)} of-${kind}`);
  if (kind === 'rest') {
    setText(name, `and ${count(rest)} smaller ones`);
    setText(figure, '');
    return;
  }
  const perCell = model.head.bytes_per_cell ?? 0;
  setText(name, pool === null ? ownerTitle(kind, pool) : poolTitle(pool));
  const size = bytes((own + added) * perCell);
  setText(figure, `${size} · ${percent(own + added, model.head.kv_cells_used)}`);
  const split = `${bytes(own * perCell)} of its own, ${bytes(added * perCell)} of its sessions`;
  setAttribute(node, 'title', pool === null ? null : split);
}

function ownerTitle(kind, pool) {
  if (kind === 'pool') return poolTitle(pool);
  if (kind === 'sessions') return `${poolTitle(pool)}: its sessions`;
  return kind === 'loose' ? 'Sessions without a pool' : 'Requests and slots without a session';
}
