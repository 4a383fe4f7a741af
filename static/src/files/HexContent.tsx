// Bytes of a file that is neither a text nor a picture, page by page.

import { bytes as sizeText } from "../format";
import { HEX_PAGE, hexLines } from "./hex";
import type { FileView, OpenedFile } from "./openedFile";

interface HexContentProps {
  file: OpenedFile;
  view: Extract<FileView, { kind: "hex" }>;
}

export function HexContent({ file, view }: HexContentProps) {
  const { bytes, start, total } = view;
  const last = Math.max(0, Math.ceil(total / HEX_PAGE) - 1);
  const page = start / HEX_PAGE;
  const lines = hexLines(bytes, start);
  return (
    <>
      {last > 0 && (
        <nav class="hex-pages" aria-label="Pages of the file">
          <button type="button" class="button" disabled={page === 0} onClick={() => void file.turnTo((page - 1) * HEX_PAGE)}>
            Previous
          </button>
          <span class="muted">
            {sizeText(start)} – {sizeText(start + bytes.length)} of {sizeText(total)}
          </span>
          <button type="button" class="button" disabled={page >= last} onClick={() => void file.turnTo((page + 1) * HEX_PAGE)}>
            Next
          </button>
        </nav>
      )}
      <pre class="file-hex" tabIndex={0} role="region" aria-label="Bytes" key={start}>
        {lines.map(({ offset, digits, text }) => (
          <span key={offset} class="hex-line">
            <span class="hex-offset">{offset}</span>
            {`  ${digits.padEnd(48)}  ${text}\n`}
          </span>
        ))}
      </pre>
    </>
  );
}
