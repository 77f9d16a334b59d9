// A stream of the server that is kept open: after a cut it is opened again, later each time.

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 10_000;
const SILENCE_MS = 20_000; // a connection that says nothing for so long is taken for dead

export class Feed {
  #api;
  #path;
  #on;
  #abort = null;
  #wake = () => {};
  #lastEventId = '';
  #loop = null; // identity of the loop that runs; null: stopped
  #cut = false; // by us, to connect anew

  /**
   * @param {{event: function(object), state: function(string, object)}} on states: connecting,
   *   live, waiting {reason, until}, unauthorized, absent
   * @param {boolean} chatty whether silence means that the connection is dead
   */
  constructor(api, path, on, { chatty = false } = {}) {
    this.#api = api;
    this.#path = path;
    this.#on = on;
    this.silenceMs = chatty ? SILENCE_MS : Infinity;
  }

  /** Connects, if there is no connection; a wait for the next attempt ends. */
  start() {
    if (this.#loop === null) this.#run((this.#loop = {}));
    else this.#wake();
  }

  /** Connects anew, also where there is a connection. */
  restart() {
    this.#cut = this.#loop !== null;
    this.#abort?.abort();
    this.start();
  }

  stop() {
    this.#loop = null;
    this.#abort?.abort();
    this.#wake();
  }

  async #run(loop) {
    let failures = 0;
    while (this.#loop === loop) {
      this.#on.state('connecting', {});
      this.#cut = false;
      const { error, heard } = await this.#listen();
      if (this.#loop !== loop) return;
      if (this.#cut) continue;
      if (error?.status === 401) {
        this.#on.state('unauthorized', { error });
        await this.#sleep(Infinity);
        continue;
      }
      if (error?.status === 404) {
        this.#on.state('absent', {});
        await this.#sleep(Infinity);
        continue;
      }
      failures = heard ? 0 : failures + 1;
      const delay = Math.max(backoff(failures), error?.retryAfterMs ?? 0);
      this.#on.state('waiting', { reason: reasonOf(error), until: Date.now() + delay });
      await this.#sleep(delay);
    }
  }

  /** One connection, until it ends: whether anything was heard, and what went wrong. */
  async #listen() {
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    let heard = false;
    let timer = this.#watch();
    try {
      const events = this.#api.stream(this.#path, { signal, lastEventId: this.#lastEventId });
      for await (const event of events) {
        clearTimeout(timer);
        timer = this.#watch();
        if (!heard) this.#on.state('live', {});
        heard = true;
        if (event.id) this.#lastEventId = event.id;
        this.#on.event(event);
      }
      return { heard };
    } catch (error) {
      return { heard, error };
    } finally {
      clearTimeout(timer);
    }
  }

  #watch() {
    const abort = this.#abort;
    return this.silenceMs === Infinity ? undefined : setTimeout(() => abort.abort(), this.silenceMs);
  }

  #sleep(ms) {
    return new Promise((resolve) => {
      const timer = ms === Infinity ? undefined : setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

// Doubles, with a random part, so that many pages do not come back at the same moment.
function backoff(failures) {
  const delay = Math.min(FIRST_DELAY_MS * 2 ** failures, LONGEST_DELAY_MS);
  return delay * (0.75 + Math.random() / 2);
}

function reasonOf(error) {
  if (error?.status) return error.message;
  return error === undefined ? 'The server closed the connection' : 'The server cannot be reached';
}
