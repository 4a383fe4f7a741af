// Code colours of a text, line by line.

import type { CodePiece } from "../markdown/highlight";

/** Text with the class of its colour. */
export interface ColouredPiece {
  text: string;
  className: string;
}

/** Returns the lines in their colours. `null`: the highlighter is not there. */
export async function colouredLines(text: string, language: string): Promise<ColouredPiece[][] | null> {
  const loaded = await import("../markdown/highlight").catch(() => null);
  return loaded && loaded.highlightLines(text.split("\n"), language).map((pieces) => flatPieces(pieces));
}

/** Returns the texts of nested spans. Their classes become one list. */
export function flatPieces(pieces: readonly CodePiece[], className = ""): ColouredPiece[] {
  return pieces.flatMap((piece) => {
    if (typeof piece !== "string") return flatPieces(piece.pieces, `${className} ${piece.className}`.trim());
    return piece ? [{ text: piece, className }] : [];
  });
}
