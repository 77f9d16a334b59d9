// The two dialogs: confirm an action on a pool, and give the API key.

import { element, setAttribute, setText } from './dom.js';
import { ACTIONS } from './inspector.js';
import { poolTitle } from './model.js';

export class ActionDialog {
  #action = null;
  #pool = null;

  /** `done(text)` is told what has been done. */
  constructor(api, done) {
    this.api = api;
    this.done = done;
    this.dialog = document.getElementById('action');
    this.title = document.getElementById('action-title');
    this.text = document.getElementById('action-text');
    this.options = document.getElementById('action-options');
    this.error = document.getElementById('action-error');
    this.submit = document.getElementById('action-do');
    const cancel = document.getElementById('action-cancel');
    cancel.addEventListener('click', () => this.dialog.close());
    this.dialog.querySelector('form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#send();
    });
  }

  ask(name, pool) {
    const action = ACTIONS[name];
    this.#action = action;
    this.#pool = pool;
    setText(this.title, `${action.verb} ${poolTitle(pool)}?`);
    setText(this.text, action.explain(pool));
    this.options.replaceChildren(
      ...(action.options?.(pool) ?? []).map(([option, label]) =>
        element('label', {}, element('input', { type: 'checkbox', value: option }), label),
      ),
    );
    setAttribute(this.error, 'hidden', true);
    setText(this.submit, action.verb);
    setAttribute(this.submit, 'class', action.danger ? 'danger' : '');
    this.submit.disabled = false;
    this.dialog.showModal();
    this.submit.focus();
  }

  async #send() {
    const chosen = [...this.options.querySelectorAll(':checked')].map((option) => option.value);
    this.submit.disabled = true;
    try {
      const answer = await this.#action.send(this.api, this.#pool.pool_id, chosen);
      this.dialog.close();
      this.done(`${poolTitle(this.#pool)}: ${result(answer)}`);
    } catch (error) {
      setText(this.error, error.message);
      setAttribute(this.error, 'hidden', null);
    } finally {
      this.submit.disabled = false;
    }
  }
}

/** What an answer to an action says. */
function result(answer) {
  if (answer.released) return 'released';
  if (answer.release_in_ms !== undefined) {
    return `goes in ${Math.round(answer.release_in_ms / 1000)} s`;
  }
  const pinned = answer.pinned ? ', pinned' : ', not pinned';
  const evicted = answer.n_evicted > 0 ? `, ${answer.n_evicted} evicted` : '';
  return `${answer.refs} ${answer.refs === 1 ? 'reference' : 'references'}${pinned}${evicted}`;
}

export class KeyDialog {
  /** `given(key)` is told a key when the user has entered one. */
  constructor(given) {
    this.dialog = document.getElementById('key');
    this.input = document.getElementById('key-text');
    this.error = document.getElementById('key-error');
    this.dialog.querySelector('form').addEventListener('submit', (event) => {
      event.preventDefault();
      const key = this.input.value;
      this.input.value = '';
      this.dialog.close();
      given(key);
    });
  }

  /** `refused`: what the server said of the key that was sent; empty: none was. */
  ask(refused) {
    if (this.dialog.open) return;
    setText(this.error, refused);
    setAttribute(this.error, 'hidden', refused === '');
    this.dialog.showModal();
    this.input.focus();
  }
}
