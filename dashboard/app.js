// Puts the page together: feeds fill the model, views show it.

import { Admission, governedPools } from './admission.js';
import { Api } from './api.js';
import { ActionDialog, KeyDialog } from './dialogs.js';
import { setAttribute, setText } from './dom.js';
import { Events, readEvent } from './events.js';
import { Feed } from './feed.js';
import { Inspector } from './inspector.js';
import { KvMap } from './kvmap.js';
import { Model } from './model.js';
import { Overview } from './overview.js';
import { Sessions } from './sessions.js';
import { Tree } from './tree.js';

const POLL_MS = 2000;
const SOON_MS = 300; // after something has happened
const MOST_VERDICTS = 4; // asked for per poll
const TOAST_MS = 6000;

const byId = (id) => document.getElementById(id);

class App {
  #model = new Model();
  #drawing = false;
  #polling = false;
  #pollTimer = 0;
  #pollDelay = POLL_MS; // until the next one
  #verdictsFrom = 0;
  #newEvents = [];
  #live = false;

  constructor() {
    this.api = new Api(new URL('./', location.href));
    this.inspector = new Inspector((name, pool) => this.actions.ask(name, pool));
    this.tree = new Tree(
      (id) => this.inspector.update(this.#model, id),
      () => this.inspector.focus(),
    );
    this.overview = new Overview();
    this.map = new KvMap((id) => this.#select(id));
    this.sessions = new Sessions();
    this.admission = new Admission((id) => this.#select(id));
    this.eventList = new Events();
    this.actions = new ActionDialog(this.api, (text) => this.#tell(text));
    this.keys = new KeyDialog((key) => this.#useKey(key));
    this.rates = new Feed(
      this.api,
      'tps',
      { event: (event) => this.#rates(event), state: (state, facts) => this.#connection(state, facts) },
      { chatty: true },
    );
    this.happenings = new Feed(this.api, 'events', {
      event: (event) => this.#happened(event),
      state: (state) => {
        this.eventList.absent = state === 'absent';
        this.#draw();
      },
    });
    byId('retry').addEventListener('click', () => this.rates.start());
    byId('forget-key').addEventListener('click', () => this.#useKey(''));
    document.addEventListener('visibilitychange', () => this.#visible());
  }

  start() {
    this.#visible();
  }

  // A page that nobody looks at holds no connection: a browser has six for each server.
  #visible() {
    if (document.hidden) {
      this.rates.stop();
      this.happenings.stop();
      clearTimeout(this.#pollTimer);
      this.#live = false;
      this.#model.breakLines();
    } else {
      this.rates.start();
    }
  }

  #connection(state, { reason, until, error }) {
    const wasLive = this.#live;
    this.#live = state === 'live';
    const words = {
      connecting: 'Connecting',
      live: 'Live',
      waiting: 'Reconnecting',
      unauthorized: 'Key needed',
      absent: 'No PolyKV here',
    };
    const pill = byId('connection');
    setText(pill, words[state]);
    setAttribute(pill, 'data-state', state);
    if (state === 'connecting') return;
    setAttribute(document.body, 'data-stale', !this.#live && this.#model.times.some((t) => t > 0));
    this.#showWait(state === 'waiting' ? { reason, until } : null);
    if (this.#live) this.#connected();
    else if (wasLive) this.#model.breakLines();
    if (state === 'unauthorized') this.keys.ask(this.api.key ? error.message : '');
  }

  #showWait(wait) {
    clearInterval(this.waitTimer);
    setAttribute(byId('banner'), 'hidden', wait === null);
    if (wait === null) return;
    const show = () => {
      const seconds = Math.max(0, Math.ceil((wait.until - Date.now()) / 1000));
      const when = seconds > 0 ? `Next attempt in ${seconds} s.` : 'Trying again…';
      setText(byId('banner').firstElementChild, `${wait.reason}. ${when}`);
    };
    show();
    this.waitTimer = setInterval(show, 500);
  }

  #connected() {
    setAttribute(byId('forget-key'), 'hidden', this.api.key === '');
    this.happenings.start();
    this.#pollSoon(0);
    this.#readServer();
  }

  async #readServer() {
    const props = await this.api.get('../props').catch(() => null);
    if (props === null) return;
    const model = (props.model_alias || props.model_path || '').split('/').at(-1);
    const version = props.opencoti?.polykv?.version;
    setText(byId('server'), [model, version && `version ${version}`].filter(Boolean).join(' · '));
  }

  #rates({ data }) {
    this.#model.applyTps(JSON.parse(data));
    this.#draw();
  }

  // Events may come in crowds: they are shown together.
  #happened({ event, data }) {
    if (event === 'reset') this.#readEvents(); // the stream does not go on from where we are
    else this.#newEvents.push(readEvent(JSON.parse(data)));
    this.#pollSoon(SOON_MS);
    this.#draw();
  }

  async #readEvents() {
    const { events } = await this.api.get('events?once=1').catch(() => ({ events: [] }));
    this.#model.addEvents(events.map(readEvent));
    this.#draw();
  }

  #pollSoon(delay) {
    this.#pollDelay = Math.min(this.#pollDelay, delay);
    if (this.#polling) return;
    clearTimeout(this.#pollTimer);
    this.#pollTimer = setTimeout(() => this.#poll(), this.#pollDelay);
  }

  async #poll() {
    if (this.#polling || !this.#live) return;
    this.#polling = true;
    this.#pollDelay = POLL_MS;
    try {
      const [pools, sessions] = await Promise.all([
        this.api.get('pools'),
        this.api.get('sessions'),
      ]);
      if (this.#model.applyPools(pools)) this.#tell('The server has been restarted.');
      this.#model.applySessions(sessions);
      await this.#askVerdicts();
    } catch {
      // The stream of rates says what is wrong with the connection.
    } finally {
      this.#polling = false;
    }
    this.#draw();
    if (this.#live) this.#pollSoon(POLL_MS);
  }

  // A few per poll, in turns: each is a question to the engine.
  async #askVerdicts() {
    const pools = governedPools(this.#model);
    const first = pools.length > 0 ? this.#verdictsFrom % pools.length : 0;
    this.#verdictsFrom = first + MOST_VERDICTS;
    const asked = [...pools.slice(first), ...pools.slice(0, first)].slice(0, MOST_VERDICTS);
    await Promise.allSettled(
      asked.map(async ({ pool_id: id }) => {
        this.#model.applyVerdict(id, await this.api.get(`pools/${id}/capacity`));
      }),
    );
  }

  #select(poolId) {
    this.tree.select(poolId, { focus: true });
    byId('pools').scrollIntoView({ block: 'nearest' });
  }

  #useKey(key) {
    this.api.setKey(key);
    setAttribute(byId('forget-key'), 'hidden', key === '');
    this.rates.restart();
    this.happenings.restart();
  }

  #tell(text) {
    const toast = byId('announcement');
    setText(toast, text);
    clearTimeout(this.toastTimer);
    this.toastTimer = setTimeout(() => setText(toast, ''), TOAST_MS);
    this.#pollSoon(0);
  }

  #draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#model.addEvents(this.#newEvents.splice(0));
      this.overview.update(this.#model);
      this.tree.update(this.#model);
      this.inspector.update(this.#model, this.tree.selected);
      this.map.update(this.#model);
      this.sessions.update(this.#model);
      this.admission.update(this.#model);
      this.eventList.update(this.#model);
    });
  }
}

new App().start();
