// Prints one line per test, the cause of each failure, and a closing line with the counts.
export default async function* report(events) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for await (const { type, data } of events) {
    if (type === "test:stderr" || type === "test:stdout") yield data.message;
    if ((type !== "test:pass" && type !== "test:fail") || data.details?.type === "suite") continue;
    const result = type === "test:fail" ? "failed" : data.skip !== undefined ? "skipped" : "passed";
    counts[result]++;
    const reason = typeof data.skip === "string" ? `: ${data.skip}` : "";
    yield `${result.padEnd(8)}${data.name}${reason} (${Math.round(data.details.duration_ms)} ms)\n`;
    if (result === "failed") yield `${data.details.error?.cause?.stack ?? data.details.error}\n`;
  }
  yield `Tests  ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n`;
}
