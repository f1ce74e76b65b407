// Axes of the laboratory's plots.

export interface Scale {
  low: number;
  high: number;
  ticks: number[];
}

// Round ends around all values, and about four steps between them. Values that are no numbers do not count.
export function scale_over(values: number[]): Scale {
  const real = values.filter(Number.isFinite);
  const [least, most] = real.length ? [Math.min(...real), Math.max(...real)] : [0, 1];
  const size = Math.max(Math.abs(least), Math.abs(most)) || 1;
  const span = most - least > 1e-6 * size ? most - least : size; // what differs by rounding alone is one value
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const step = ([1, 2, 2.5, 5, 10].find((each) => each * power >= span / 4) ?? 10) * power;
  const first = Math.floor(least / step + 1e-9);
  const last = Math.max(first + 1, Math.ceil(most / step - 1e-9));
  const ticks = Array.from({ length: last - first + 1 }, (_, idx) => Number(((first + idx) * step).toPrecision(12)));
  return { low: ticks[0] ?? 0, high: ticks.at(-1) ?? 1, ticks };
}

export function at({ low, high }: Scale, value: number, from: number, to: number): number {
  const inside = Math.min(high, Math.max(low, value));
  return from + ((inside - low) / (high - low)) * (to - from);
}
