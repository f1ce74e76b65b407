// Numbers as people read them. An absent number is a dash.

type Maybe = number | null | undefined;

const kDash = "–";

function is_number(value: Maybe): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

export function format_count(value: Maybe): string {
  return is_number(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : kDash;
}

export function format_rate(value: Maybe): string {
  if (!is_number(value)) return kDash;
  return value.toLocaleString("en-US", { maximumFractionDigits: value < 100 ? 1 : 0 });
}

// 134515008 -> "134.5 M"
export function format_short(value: Maybe): string {
  if (!is_number(value)) return kDash;
  for (const [unit, size] of [
    ["T", 1e12],
    ["B", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const) {
    if (value >= size) return `${(value / size).toPrecision(value / size >= 100 ? 4 : 3)} ${unit}`;
  }
  return String(value);
}

export function format_bytes(value: Maybe): string {
  if (!is_number(value)) return kDash;
  return value < 1e3 ? `${value} B` : `${format_short(value).replace("B", "G").replace("k", "K")}B`;
}

export function format_seconds(value: Maybe): string {
  if (!is_number(value)) return kDash;
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

export function format_duration(value: Maybe): string {
  if (!is_number(value)) return kDash;
  const minutes = Math.floor(value / 60);
  const hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${Math.floor(value % 60)} s` : `${Math.floor(value)} s`;
}

// A setting as it would be typed: float32 0.6 comes as 0.6000000238.
export function format_setting(value: Maybe): string {
  return is_number(value) ? String(Number(value.toPrecision(6))) : kDash;
}

// When something was, as seen from `now_ms`: the time of today, else the day.
export function format_when(time_ms: number, now_ms: number): string {
  const [time, now] = [new Date(time_ms), new Date(now_ms)];
  if (time.toDateString() === now.toDateString())
    return time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const year = time.getFullYear() === now.getFullYear() ? {} : { year: "numeric" as const };
  return time.toLocaleDateString([], { day: "numeric", month: "short", ...year });
}
