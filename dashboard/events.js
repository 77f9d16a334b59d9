// What has happened, newest first.

import { element, KeyedChildren, setAttribute, setText } from './dom.js';
import { clock } from './format.js';
import { poolTitle } from './model.js';

const MOST_SHOWN = 100;
const COMMON = new Set(['kind', 'ts', 'id', 'pool_id', 'session_id', 'name', 'request_id']);

export class Events {
  #model = null;

  constructor() {
    this.list = document.getElementById('events');
    this.empty = document.getElementById('events-empty');
    this.kind = document.getElementById('event-kind');
    this.absent = false;
    this.items = new KeyedChildren(this.list, () => makeItem(), updateItem);
    this.kind.addEventListener('input', () => this.update(this.#model));
  }

  update(model) {
    this.#model = model;
    const wanted = this.kind.value;
    const shown = model.events
      .filter((event) => !wanted || groupOf(event.name) === wanted)
      .slice(0, MOST_SHOWN);
    this.items.set(shown.map((event) => [event.id, { event, model }]));
    setAttribute(this.empty, 'hidden', shown.length > 0);
    setAttribute(this.list, 'hidden', shown.length === 0);
    setText(
      this.empty,
      this.absent ? 'This server tells no events.' : 'Nothing has happened yet.',
    );
  }
}

/** An event, as the server tells it, as the page keeps it. */
export function readEvent(facts) {
  return { id: facts.id, name: facts.kind, facts };
}

function groupOf(name) {
  if (name.startsWith('pool')) return 'pool';
  if (name.startsWith('session')) return 'session';
  if (name.startsWith('floor')) return 'floor';
  return /^(admission|settle|policy)/.test(name) ? 'admission' : 'other';
}

const BAD = /failed|broken|cancelled|reject/;
const WARN = /pressure|parked|evicted|queue|hold|warn|overcommit|draining/;

function levelOf(name, facts) {
  const text = `${name} ${facts.decision ?? ''}`;
  if (BAD.test(text)) return 'bad';
  return WARN.test(text) ? 'warn' : '';
}

function makeItem() {
  return element(
    'li',
    {},
    element('time'),
    element('span', { class: 'badge' }),
    element('span', { class: 'text' }),
  );
}

function updateItem(node, { event, model }) {
  const { name, facts } = event;
  const [time, badge, text] = node.children;
  setText(time, facts.ts ? clock(facts.ts) : '');
  setText(badge, name.replaceAll('_', ' '));
  setAttribute(badge, 'class', `badge ${levelOf(name, facts)}`);
  setText(text, sentence(facts, model));
}

function sentence(facts, model) {
  const parts = [];
  if (facts.session_id) parts.push(facts.session_id);
  if (facts.pool_id != null) {
    const pool = model.pools.get(facts.pool_id);
    parts.push(facts.name ?? (pool ? poolTitle(pool) : `pool ${facts.pool_id}`));
  }
  for (const [name, value] of Object.entries(facts)) {
    if (COMMON.has(name) || value === '' || value === null) continue;
    parts.push(`${name.replaceAll('_', ' ')} ${readable(value)}`);
  }
  return parts.join(' · ');
}

function readable(value) {
  return typeof value === 'number' && !Number.isInteger(value) ? value.toFixed(1) : String(value);
}
