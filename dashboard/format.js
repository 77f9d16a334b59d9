// Numbers as people read them. Null and undefined are shown as a dash.

const DASH = '–';

/** A whole number with thousands separators. */
export function count(value) {
  return value == null ? DASH : Math.round(value).toLocaleString('en-US');
}

/** "1 session", "2 sessions". */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** Bytes in the largest binary unit that leaves at least 1. */
export function bytes(value) {
  if (value == null) return DASH;
  let rest = value;
  let unit = 'B';
  for (const larger of ['KiB', 'MiB', 'GiB', 'TiB']) {
    if (rest < 1024) break;
    rest /= 1024;
    unit = larger;
  }
  return `${unit === 'B' || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${unit}`;
}

/** Tokens per second, without the unit. */
export function rate(value) {
  if (value == null || Number.isNaN(value)) return DASH;
  return value >= 1000 ? count(value) : value.toFixed(1);
}

/** A part of a whole, as "12 %"; what is not nothing is not shown as 0. */
export function percent(part, whole) {
  if (!whole) return DASH;
  const value = (100 * part) / whole;
  return value > 0 && value < 0.5 ? '<1 %' : `${Math.round(value)} %`;
}

export function milliseconds(value) {
  if (value == null) return DASH;
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

/** The time of day of Unix milliseconds. */
export function clock(unixMs) {
  return new Date(unixMs).toLocaleTimeString('en-GB');
}
