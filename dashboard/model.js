// What the page knows of the server: answers go in, views read. Touches neither network nor page.

export const N_SAMPLES = 120;
const MOST_EVENTS = 400;
const STATES = ['decoding', 'prefilling', 'parked', 'queued', 'idle'];

export class Model {
  head = {}; // what stands above the list of pools
  pools = new Map(); // by id, parents before their children
  sessions = new Map(); // by key, in the server's order
  verdicts = new Map(); // by pool id
  events = []; // newest first
  tps = {};
  server = null; // opencoti.polykv of /props, and the model's name
  times = emptySeries();
  aggregate = emptySeries();
  mean = emptySeries();
  #byPool = new Map(); // lists of sessions

  /** A document of GET /polykv/tps. */
  applyTps(document) {
    this.tps = document;
    push(this.times, document.ts);
    push(this.aggregate, document.aggregate_tps);
    push(this.mean, document.mean_active_tps);
    this.#merge(document.sessions, (session) => {
      session.history ??= emptySeries();
      push(session.history, session.tps_ewma);
    });
  }

  /** A document of GET /polykv/sessions; it has more of each session. */
  applySessions(document) {
    this.#merge(document.sessions, (session) => {
      session.history ??= emptySeries();
    });
  }

  /** A document of GET /polykv/pools. Returns whether the server is another than before. */
  applyPools(document) {
    const { pools, ...head } = document;
    const restarted = this.head.boot_id !== undefined && this.head.boot_id !== head.boot_id;
    if (restarted) this.#forget();
    this.head = head;
    this.pools = new Map(pools.map((pool) => [pool.pool_id, pool]));
    for (const id of this.verdicts.keys()) if (!this.pools.has(id)) this.verdicts.delete(id);
    return restarted;
  }

  applyVerdict(poolId, verdict) {
    if (this.pools.has(poolId)) this.verdicts.set(poolId, verdict);
  }

  /** Oldest first; what is known already is not added again. */
  addEvents(events) {
    if (events.length === 0) return;
    const known = new Set(this.events.map((event) => event.id));
    const fresh = events.filter((event) => !known.has(event.id)).reverse();
    const all = [...fresh, ...this.events].sort((a, b) => b.facts.ts - a.facts.ts);
    this.events = all.slice(0, MOST_EVENTS);
  }

  /** Lines of charts have a gap where nothing was heard. */
  breakLines() {
    const series = [...this.sessions.values()].map((session) => session.history);
    for (const values of [this.aggregate, this.mean, ...series]) push(values, NaN);
    push(this.times, this.times.at(-1));
  }

  /** The pools as rows of a tree: {pool, level, place, siblings, hasChildren}, depth first. */
  treeRows(collapsed = new Set()) {
    const children = new Map();
    for (const pool of this.pools.values()) {
      const parent = this.pools.has(pool.parent) ? pool.parent : null;
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(pool);
    }
    const rows = [];
    const visit = (parent, level) => {
      const siblings = children.get(parent) ?? [];
      siblings.forEach((pool, index) => {
        const hasChildren = children.has(pool.pool_id);
        const row = { pool, level, place: index + 1, siblings: siblings.length, hasChildren };
        rows.push(row);
        if (!collapsed.has(pool.pool_id)) visit(pool.pool_id, level + 1);
      });
    };
    visit(null, 1);
    return rows;
  }

  /** The pool whose policy governs the sessions of this one: itself or an ancestor; or null. */
  governor(poolId) {
    let pool = this.pools.get(poolId);
    while (pool !== undefined && pool.admission === null) pool = this.pools.get(pool.parent);
    return pool ?? null;
  }

  /** Tokens per second that a session of this pool is to have; null: nobody says. */
  floor(poolId) {
    return this.governor(poolId)?.admission.target_tps_per_session ?? null;
  }

  isUnderFloor(session) {
    const floor = this.floor(session.pool_id);
    return floor !== null && session.tps_ewma !== null && session.tps_ewma < floor;
  }

  sessionsOf(poolId) {
    return this.#byPool.get(poolId) ?? [];
  }

  /** {decoding: 3, prefilling: 0, …} */
  countStates() {
    const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    for (const session of this.sessions.values()) counts[session.state] += 1;
    return counts;
  }

  /**
   * Who owns the cells in use, in the order of the tree: {key, kind, pool, cells}, with kind pool
   * (what it computed), sessions (their private cells), loose (of sessions without a pool), others.
   */
  owners() {
    const perCell = this.head.bytes_per_cell || 1;
    const privateCells = new Map();
    for (const session of this.sessions.values()) {
      const owner = this.pools.has(session.pool_id) ? session.pool_id : null;
      const cells = session.suffix_n_tokens ?? 0;
      privateCells.set(owner, (privateCells.get(owner) ?? 0) + cells);
    }
    const owners = [];
    for (const { pool } of this.treeRows()) {
      const id = pool.pool_id;
      owners.push({ key: `${id}`, kind: 'pool', pool, cells: pool.own_kv_bytes / perCell });
      owners.push({ key: `${id}/s`, kind: 'sessions', pool, cells: privateCells.get(id) ?? 0 });
    }
    owners.push({ key: 'loose', kind: 'loose', pool: null, cells: privateCells.get(null) ?? 0 });
    const known = owners.reduce((sum, owner) => sum + owner.cells, 0);
    const others = Math.max(0, (this.head.kv_cells_used ?? 0) - known);
    owners.push({ key: 'others', kind: 'others', pool: null, cells: others });
    return owners.filter((owner) => owner.cells > 0);
  }

  #forget() {
    this.sessions.clear();
    this.#byPool.clear();
    this.verdicts.clear();
    for (const series of [this.times, this.aggregate, this.mean]) series.fill(NaN);
  }

  // Two tenants may have sessions of one name: the second one gets another key.
  #merge(entries, fill) {
    const merged = new Map();
    this.#byPool.clear();
    for (const entry of entries) {
      let key = entry.session_id;
      while (merged.has(key)) key += '\u0000';
      const session = Object.assign(this.sessions.get(key) ?? { key }, entry);
      fill(session);
      merged.set(key, session);
      const others = this.#byPool.get(session.pool_id);
      if (others === undefined) this.#byPool.set(session.pool_id, [session]);
      else others.push(session);
    }
    this.sessions = merged;
  }
}

export function poolTitle(pool) {
  return pool.name ?? `pool ${pool.pool_id}`;
}

function emptySeries() {
  return new Float64Array(N_SAMPLES).fill(NaN);
}

/** The newest value is the last. */
function push(series, value) {
  series.copyWithin(0, 1);
  series[N_SAMPLES - 1] = value ?? NaN;
}
