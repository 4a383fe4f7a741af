// Found files as a list of buttons, with their paths.

import { plural } from "../format";
import { ErrorNotice } from "../components/ErrorNotice";
import { fileIcon } from "./fileIcon";
import { FileName } from "./FileName";
import type { FilesState } from "./filesState";
import type { SearchResult } from "./fileSearch";
import { keyOfPath, type FileEntry } from "./workspaceFiles";
import { WorkspaceIcon } from "./WorkspaceIcon";

export function FileSearchResults({ files, result }: { files: FilesState; result: SearchResult }) {
  const { entries, searching, cursor, problem } = result;
  const choose = (entry: FileEntry) => {
    void files.tree.reveal(entry);
    if (entry.kind === "directory") files.search.type("");
    else files.show(entry);
  };
  return (
    <div class="file-tree">
      <p class="file-note" role="status">
        {searching ? "Searching…" : entries.length === 0 ? "Nothing found" : `${plural(entries.length, "entry", "entries")}${cursor === null ? "" : " so far"}`}
      </p>
      {problem && <ErrorNotice text={problem} />}
      <ul>
        {entries.map((entry) => (
          <li key={keyOfPath(entry)}>
            <button type="button" class="file-row" data-key={keyOfPath(entry)} onClick={() => choose(entry)}>
              <WorkspaceIcon name={fileIcon(entry)} />
              <FileName name={entry.path} encoded={entry.encoded} />
            </button>
          </li>
        ))}
      </ul>
      {cursor !== null && !searching && (
        <button type="button" class="button" onClick={() => files.search.more()}>
          Search on
        </button>
      )}
    </div>
  );
}
