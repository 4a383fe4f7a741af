// What this browser keeps for a person over a reload, as far as it has room.

/** Keeps a text; an empty one is forgotten. Where there is no room it is not kept, and all else goes on. */
export function keep(key: string, text: string): void {
  try {
    if (text) localStorage.setItem(key, text);
    else localStorage.removeItem(key);
  } catch {
    // What stood there before is not the newest any more.
    localStorage.removeItem(key);
  }
}
