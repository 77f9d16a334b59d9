// Small charts of our own: a line over time with a floor, and bars.

import { element, setAttribute, setStyle, svgElement } from './dom.js';
import { N_SAMPLES } from './model.js';

const HEIGHT = 32;

/** A line of the latest samples; `update(values, {max, floor})`. */
export class Sparkline {
  constructor() {
    this.line = svgElement('path', { class: 'line' });
    this.area = svgElement('path', { class: 'area' });
    this.floor = svgElement('line', { class: 'floor', x1: 0, x2: N_SAMPLES - 1 });
    this.node = svgElement(
      'svg',
      {
        class: 'sparkline',
        viewBox: `0 -1 ${N_SAMPLES - 1} ${HEIGHT + 2}`,
        preserveAspectRatio: 'none',
        'aria-hidden': 'true',
      },
      this.area,
      this.floor,
      this.line,
    );
  }

  update(values, { max, floor = null }) {
    const toY = (value) => (HEIGHT * (1 - Math.min(1, value / (max || 1)))).toFixed(1);
    let line = '';
    let area = '';
    let start = -1;
    for (let i = 0; i <= values.length; ++i) {
      const isGap = i === values.length || Number.isNaN(values[i]);
      if (!isGap) {
        line += `${start < 0 ? 'M' : 'L'}${i} ${toY(values[i])}`;
        area += `${start < 0 ? `M${i} ${HEIGHT}` : ''}L${i} ${toY(values[i])}`;
        if (start < 0) start = i;
      } else if (start >= 0) {
        if (start === i - 1) line += 'h0.01'; // a single sample is a dot
        area += `L${i - 1} ${HEIGHT}Z`;
        start = -1;
      }
    }
    setAttribute(this.line, 'd', line);
    setAttribute(this.area, 'd', area);
    setAttribute(this.floor, 'visibility', floor === null ? 'hidden' : null);
    if (floor !== null) {
      setAttribute(this.floor, 'y1', toY(floor));
      setAttribute(this.floor, 'y2', toY(floor));
    }
  }
}

/** The largest sample, or `least` if that is larger. */
export function peak(values, least = 0) {
  let largest = least;
  for (const value of values) if (value > largest) largest = value;
  return largest;
}

/** A bar with parts, each a share of the whole: `update([[class, share], …])`. */
export class StackedBar {
  constructor(className = '') {
    this.node = element('span', { class: `bar ${className}`, 'aria-hidden': 'true' });
  }

  update(parts) {
    while (this.node.children.length > parts.length) this.node.lastChild.remove();
    while (this.node.children.length < parts.length) this.node.append(element('span'));
    parts.forEach(([className, share], place) => {
      const part = this.node.children[place];
      setAttribute(part, 'class', className);
      setStyle(part, 'width', `${(100 * Math.max(0, Math.min(1, share || 0))).toFixed(2)}%`);
    });
  }
}
