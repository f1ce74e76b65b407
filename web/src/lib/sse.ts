// Server-sent events from any byte stream, however it is cut into pieces.

export interface ServerEvent {
  event: string; // "message" where it has no name
  id: string; // of this event or the last one that had one
  data: string;
}

// Yields each event that has data. A piece may end inside a line or a character; comment lines and unknown fields are
// skipped; lines end in LF, CRLF or CR.
export async function* read_named_events(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  let event = "";
  let id = "";
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
          if (data.length) yield { event: event || "message", id, data: data.join("\n") };
          data = [];
          event = "";
        }
        const colon = line.indexOf(":");
        const value = line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
        if (line.startsWith("data:")) data.push(value);
        else if (line.startsWith("event:")) event = value;
        else if (line.startsWith("id:")) id = value;
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

// The data alone.
export async function* read_events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  for await (const { data } of read_named_events(body)) yield data;
}
