// Hands a text to the browser as a file to save.
export function download(name: string, ending: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${
    name
      .replace(/[^\p{L}\p{N} _.-]+/gu, " ")
      .trim()
      .slice(0, 60) || "conversation"
  }.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may ask where to, and reads it then
}
