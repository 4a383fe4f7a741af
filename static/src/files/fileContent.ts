// Kind of a file's content, by its first bytes.

/** `blob`: bytes that are neither a text nor a picture. */
export type ContentKind = "text" | "picture" | "blob";

const PICTURE = /^image\/(png|jpeg|gif|webp)\b/;

/** Longest incomplete character at the end of a part: UTF-8 has at most four bytes. */
const MAX_CUT_BYTES = 3;

/**
 * Returns the kind of a content. `type`: media type of the server, which looks at the content.
 * `isWhole`: false if the bytes may end within a character.
 */
export function contentKind(bytes: Uint8Array, type: string, isWhole: boolean): ContentKind {
  if (PICTURE.test(type)) return "picture";
  if (bytes.includes(0)) return "blob";
  for (let cut = 0; cut <= (isWhole ? 0 : MAX_CUT_BYTES); cut += 1) {
    if (isUtf8(bytes.subarray(0, bytes.length - cut))) return "text";
  }
  return "blob";
}

function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

/** Line ends of a text. A text field knows only `\n`, so mixed ends cannot be kept. */
export type LineEnds = "\n" | "\r\n" | "mixed";

export function lineEndsOf(text: string): LineEnds {
  const windows = text.match(/\r\n/g)?.length ?? 0;
  const returns = text.match(/\r/g)?.length ?? 0;
  const newlines = text.match(/\n/g)?.length ?? 0;
  if (returns === 0) return "\n";
  return windows === newlines && windows === returns ? "\r\n" : "mixed";
}
