// Copies text. Browsers offer the clipboard only on https and localhost; elsewhere a selection does it.
export async function copy_text(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const focused = document.activeElement;
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}
