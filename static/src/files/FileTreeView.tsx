// Tree of the workspace, for mouse, keyboard and screen reader.

import { useEffect, useRef } from "preact/hooks";
import { bytes } from "../format";
import { Icon } from "../components/Icon";
import { fileIcon } from "./fileIcon";
import { FileName } from "./FileName";
import type { FilesState } from "./filesState";
import type { EntryRow, TreeRow } from "./fileTree";
import { prepareDragOut, startDragOut } from "./dragOut";
import { moveInTree, TreeTypeahead } from "./treeKeys";
import { keyOfPath, type WorkspacePath } from "./workspaceFiles";
import { WorkspaceIcon } from "./WorkspaceIcon";

interface FileTreeViewProps {
  files: FilesState;
  readOnly: boolean;
  /** Directory that a drop would go to. */
  target: WorkspacePath | null;
}

export function FileTreeView({ files, readOnly, target }: FileTreeViewProps) {
  const { tree } = files;
  const rows = tree.rows.value;
  const box = useRef<HTMLDivElement>(null);
  const typeahead = useRef(new TreeTypeahead()).current;
  const moved = useRef(false);
  const active = rows.some(({ key }) => key === tree.active.value) ? tree.active.value : (rows[0]?.key ?? "");

  // The focus follows the active row after a key.
  useEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    box.current?.querySelector<HTMLElement>("[role=treeitem][tabindex='0']")?.focus();
  });

  const choose = (row: TreeRow) => {
    tree.active.value = row.key;
    if (row.kind === "more") void tree.more(row.level);
    else if (row.kind === "problem") void tree.load(row.level);
    else if (row.kind !== "entry") return;
    else if (row.entry.kind === "directory") tree.toggle(row.entry);
    else files.show(row.entry);
  };

  const keyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = rows.find(({ key }) => key === active);
    const move = moveInTree(rows, active, event.key);
    if (move) {
      if ("to" in move) tree.active.value = move.to.key;
      else choose("toggle" in move ? move.toggle : move.choose);
      moved.current = true;
    } else if (event.key === "F2" && row?.kind === "entry" && !readOnly) files.dialog.value = { action: "move", entry: row.entry };
    else if (event.key === "Delete" && row?.kind === "entry" && !readOnly) files.dialog.value = { action: "delete", entry: row.entry };
    else if (event.key.length === 1) {
      const found = typeahead.find(rows, active, event.key, Date.now());
      if (found) tree.active.value = found.key;
      moved.current = true;
    } else return;
    event.preventDefault();
  };

  return (
    <div class="file-tree" role="tree" aria-label="Files of the workspace" ref={box} onKeyDown={keyDown}>
      {rows.map((row) => {
        const isActive = row.key === active;
        const common = { "data-key": row.key, tabIndex: isActive ? 0 : -1, onClick: () => choose(row), onFocus: () => (tree.active.value = row.key) };
        if (row.kind !== "entry") return <NoteRow key={row.key} row={row} common={common} />;
        const isTarget = target !== null && keyOfPath(target) === row.key;
        const isShown = files.opened.value !== null && keyOfPath(files.opened.value.entry) === row.key;
        return <EntryItem key={row.key} session={files.session} row={row} common={common} isTarget={isTarget} isShown={isShown} />;
      })}
    </div>
  );
}

type CommonProps = Record<string, unknown>;

interface EntryItemProps {
  session: string;
  row: EntryRow;
  common: CommonProps;
  isTarget: boolean;
  isShown: boolean;
}

function EntryItem({ session, row, common, isTarget, isShown }: EntryItemProps) {
  const { entry, depth, isOpen, isChanged } = row;
  return (
    <div
      {...common}
      class={`file-row${isTarget ? " target" : ""}${entry.hidden ? " dotfile" : ""}`}
      role="treeitem"
      aria-level={depth}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-expanded={entry.kind === "directory" ? isOpen : undefined}
      aria-selected={isShown}
      style={{ "--depth": depth }}
      draggable
      onPointerDown={() => prepareDragOut(session, entry)}
      onDragStart={(event) => startDragOut(event, session, entry)}
    >
      <span class={isOpen ? "file-twist open" : "file-twist"}>{entry.kind === "directory" && <Icon name="chevron" />}</span>
      <WorkspaceIcon name={fileIcon(entry, isOpen)} />
      <FileName name={entry.name} encoded={entry.encoded} />
      {isChanged && <span class="file-dot" role="img" aria-label="changed since you looked" title="Changed since you looked" />}
      {entry.kind === "file" && <span class="file-size">{bytes(entry.bytes)}</span>}
      {entry.kind === "link" && <span class="file-size">link</span>}
      {entry.kind === "other" && <span class="file-size">special file</span>}
    </div>
  );
}

function NoteRow({ row, common }: { row: Exclude<TreeRow, EntryRow>; common: CommonProps }) {
  return (
    <div {...common} class={`file-row note ${row.kind}`} role="treeitem" aria-level={row.depth} aria-selected={false} style={{ "--depth": row.depth }}>
      <span class="file-twist" />
      {row.kind === "loading" && "Loading…"}
      {row.kind === "empty" && "Empty"}
      {row.kind === "more" && <span class="link">Show more</span>}
      {row.kind === "problem" && (
        <span class="file-problem">
          {row.text} <span class="link">Try again</span>
        </span>
      )}
    </div>
  );
}
