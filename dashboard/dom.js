// Elements without markup: text of others enters the page as text only.

const SVG = 'http://www.w3.org/2000/svg';

/** element('p', {class: 'note', text: 'Hi'}, child…); a property named on… is a listener. */
export function element(name, properties = {}, ...children) {
  return build(document.createElement(name), properties, children);
}

export function svgElement(name, properties = {}, ...children) {
  return build(document.createElementNS(SVG, name), properties, children);
}

function build(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'text') node.textContent = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else setAttribute(node, name, value);
  }
  node.append(...children);
  return node;
}

/** Writes only what has changed, so that an update costs nothing where nothing is new. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Null, undefined and false remove the attribute; true leaves it empty. */
export function setAttribute(node, name, value) {
  if (value == null || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const wanted = value === true ? '' : String(value);
  if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
}

export function setStyle(node, name, value) {
  if (node.style.getPropertyValue(name) !== value) node.style.setProperty(name, value);
}

/**
 * One child per item: kept by key, made by `make(item)`, filled by `update(child, item)`, in the
 * order of the items.
 */
export class KeyedChildren {
  #parent;
  #make;
  #update;
  #nodes = new Map();

  constructor(parent, make, update) {
    this.#parent = parent;
    this.#make = make;
    this.#update = update;
  }

  /** `items`: [key, item] pairs. */
  set(items) {
    const wanted = new Set(items.map(([key]) => key));
    for (const [key, node] of this.#nodes) {
      if (wanted.has(key)) continue;
      node.remove();
      this.#nodes.delete(key);
    }
    items.forEach(([key, item], place) => {
      let node = this.#nodes.get(key);
      if (node === undefined) {
        node = this.#make(item);
        this.#nodes.set(key, node);
      }
      const there = this.#parent.children[place] ?? null;
      if (there !== node) this.#parent.insertBefore(node, there);
      this.#update(node, item);
    });
  }

  get(key) {
    return this.#nodes.get(key);
  }
}
