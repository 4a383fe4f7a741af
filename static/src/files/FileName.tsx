// Name of an entry. Invisible characters are visible, and a name that is not UTF-8 is marked.

import { escapeInvisible } from "../escapes";

export function FileName({ name, encoded }: { name: string; encoded: boolean }) {
  return (
    <>
      <bdi class="file-name">{escapeInvisible(name)}</bdi>
      {encoded && (
        <span class="badge" title="The name is not UTF-8 or has control characters. Its bytes are percent-encoded.">
          encoded
        </span>
      )}
    </>
  );
}
