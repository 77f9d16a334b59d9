// The server's HTTP API: JSON requests and event streams, with the key where one is needed.
// An EventSource cannot send a header, therefore the streams are read by fetch.

const KEY = 'polykv-api-key';

/** An answer that is not 2xx. Its message is the server's own. */
export class HttpError extends Error {
  constructor(status, error, retryAfter) {
    super(error?.message ?? `The server answered with status ${status}`);
    this.status = status;
    this.type = error?.type ?? '';
    this.retryAfterMs = 1000 * (Number(retryAfter) || 0);
  }
}

export class Api {
  /** @param {URL} base the folder of the /polykv routes, with a slash at its end */
  constructor(base) {
    this.base = base;
    this.key = sessionStorage.getItem(KEY) ?? '';
  }

  /** The key lives as long as the tab. */
  setKey(key) {
    this.key = key;
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  }

  get(path, signal) {
    return this.#call('GET', path, undefined, signal);
  }

  post(path, body) {
    return this.#call('POST', path, body);
  }

  delete(path) {
    return this.#call('DELETE', path, {});
  }

  /** The events of a stream, {id, event, data}, until it ends; throws when it breaks. */
  async *stream(path, { signal, lastEventId } = {}) {
    const headers = { Accept: 'text/event-stream' };
    if (lastEventId) headers['Last-Event-ID'] = lastEventId;
    const response = await this.#fetch(path, { headers, signal });
    yield* parseEvents(response.body.pipeThrough(new TextDecoderStream()));
  }

  async #call(method, path, body, signal) {
    const request = { method, signal, headers: {} };
    if (body !== undefined) {
      request.headers['Content-Type'] = 'application/json';
      request.body = JSON.stringify(body);
    }
    return (await this.#fetch(path, request)).json();
  }

  async #fetch(path, request) {
    if (this.key) request.headers.Authorization = `Bearer ${this.key}`;
    const options = { cache: 'no-store', credentials: 'omit', ...request };
    const response = await fetch(new URL(path, this.base), options);
    if (response.ok) return response;
    const answer = await response.json().catch(() => null);
    throw new HttpError(response.status, answer?.error, response.headers.get('Retry-After'));
  }
}

/** Server-sent events from pieces of text, wherever these were cut. */
export async function* parseEvents(pieces) {
  let rest = '';
  let event = {};
  let data = [];
  for await (const piece of readAll(pieces)) {
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) yield { ...event, data: data.join('\n') };
        event = {};
        data = [];
        continue;
      }
      const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
      if (field === 'data') data.push(value ?? '');
      else if (field === 'id' || field === 'event') event[field] = value ?? '';
    }
  }
}

// A ReadableStream is not iterable everywhere.
async function* readAll(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
