// Server-sent events from any byte stream, however it is cut into pieces.

// Yields the data of each event. A piece may end inside a line or a character; comment lines and unknown fields are
// skipped; lines end in LF, CRLF or CR.
export async function* read_events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += done ? decoder.decode() + "\n\n" : decoder.decode(value, { stream: true });
      // A CR at the very end may be the first half of a CRLF: it waits for the next piece.
      const held = !done && rest.endsWith("\r") ? "\r" : "";
      const lines = rest.slice(0, rest.length - held.length).split(/\r\n|\n|\r/);
      rest = (lines.pop() ?? "") + held;
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
