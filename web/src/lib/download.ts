// Hands a file to the browser to save.
export function save_file(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may ask where to, and reads it then
}

// The same with a text, under a name that any system takes.
export function download(name: string, ending: string, text: string): void {
  const plain = name
    .replace(/[^\p{L}\p{N} _.-]+/gu, " ")
    .trim()
    .slice(0, 60);
  save_file(`${plain || "conversation"}.${ending}`, new Blob([text], { type: "text/plain;charset=utf-8" }));
}
