// The geometry of a live chart.

const kWindow_s = 120;

export interface Frame {
  left: number;
  right: number;
  top: number;
  bottom: number;
  max: number; // the value at the top
  newest_s: number; // the time at the right edge
}

// The next round number: 1, 2 or 4 times a power of ten, at least `value`.
export function nice_top(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 10].find((step) => step * power >= value) ?? 10;
  return step * power;
}

export function ticks_to(top: number): number[] {
  return [0, top / 2, top];
}

// An SVG path over the values of the last two minutes; where a value is missing the line has a gap.
export function line_path(times: number[], values: (number | null)[], frame: Frame): string {
  const first_s = frame.newest_s - kWindow_s;
  let path = "";
  let is_drawn = false;
  for (const [idx, time_s] of times.entries()) {
    const value = values[idx];
    if (value === null || value === undefined || time_s < first_s) {
      is_drawn = false;
      continue;
    }
    const x = frame.left + ((time_s - first_s) / kWindow_s) * (frame.right - frame.left);
    const y = frame.bottom - (Math.min(value, frame.max) / frame.max) * (frame.bottom - frame.top);
    path += `${is_drawn ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    is_drawn = true;
  }
  return path;
}
