// Bytes of a file as lines of hexadecimal numbers.

/** Bytes of a page of the hex view. */
export const HEX_PAGE = 64 * 1024;

const PER_LINE = 16;

export interface HexLine {
  /** Position of the first byte in the file, as eight or more digits. */
  offset: string;
  /** Sixteen bytes with a gap in the middle. The last line may be shorter. */
  digits: string;
  /** Printable ASCII. A dot stands for each other byte. */
  text: string;
}

/** Returns the lines of a page that begins at `start`. */
export function hexLines(bytes: Uint8Array, start: number): HexLine[] {
  const lines: HexLine[] = [];
  for (let at = 0; at < bytes.length; at += PER_LINE) {
    const part = [...bytes.subarray(at, at + PER_LINE)];
    const digits = part.map((byte, n) => (n === PER_LINE / 2 ? " " : "") + byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push({ offset: (start + at).toString(16).padStart(8, "0"), digits, text });
  }
  return lines;
}
