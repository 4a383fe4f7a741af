// Opened file: its content, its actions, and the edit.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { downloadUrl } from "../dom/download";
import { bytes, relativeTime } from "../format";
import { now } from "../clock";
import { EmptyState } from "../components/EmptyState";
import { ErrorNotice } from "../components/ErrorNotice";
import { Icon } from "../components/Icon";
import { pageSkeleton } from "../components/lazy";
import { downloadAddress } from "./FileActions";
import { FileEditor } from "./FileEditor";
import { FileName } from "./FileName";
import type { FilesState } from "./filesState";
import { HexContent } from "./HexContent";
import type { OpenedFile } from "./openedFile";
import { TextContent } from "./TextContent";
import { WorkspaceIcon } from "./WorkspaceIcon";

interface FileViewerProps {
  files: FilesState;
  file: OpenedFile;
  readOnly: boolean;
}

export function FileViewer({ files, file, readOnly }: FileViewerProps) {
  const { entry } = file;
  const edit = file.edit.value;
  const canEdit = !readOnly && !edit && file.isEditable;
  const back = useRef<HTMLButtonElement>(null);

  // In a narrow pane the file replaces the tree, which had the focus.
  useLayoutEffect(() => {
    if (back.current?.checkVisibility?.()) back.current.focus();
  }, []);

  const close = () => {
    files.closeFile();
    // The tree is drawn again by then.
    requestAnimationFrame(() => document.querySelector<HTMLElement>(".file-tree [role=treeitem][tabindex='0']")?.focus());
  };

  return (
    <section class="file-viewer" aria-label={`File ${entry.path}`}>
      <header class="file-header">
        <button ref={back} type="button" class="icon-button file-back" aria-label="Back to the files" title="Back to the files" onClick={close}>
          <WorkspaceIcon name="back" />
        </button>
        <h2 class="file-title" title={entry.path}>
          <FileName name={entry.path} encoded={entry.encoded} />
        </h2>
        {canEdit && (
          <button type="button" class="button" onClick={() => file.startEdit()}>
            Edit
          </button>
        )}
        {entry.kind === "file" && (
          <button type="button" class="icon-button" aria-label="Download" title="Download" onClick={() => void downloadUrl(downloadAddress(files.session, entry))}>
            <WorkspaceIcon name="download" />
          </button>
        )}
        <button type="button" class="icon-button file-close" aria-label="Close the file" title="Close the file" onClick={close}>
          <Icon name="cross" />
        </button>
      </header>
      {file.isOutdated.value && !edit?.conflict && (
        <ErrorNotice text="The file changed meanwhile." retryLabel="Reload" onRetry={() => void file.load()} />
      )}
      {edit && !readOnly ? <FileEditor file={file} edit={edit} /> : <FileContent files={files} file={file} />}
      <FileFacts file={file} readOnly={readOnly} />
    </section>
  );
}

function FileContent({ files, file }: { files: FilesState; file: OpenedFile }) {
  const view = file.view.value;
  switch (view.kind) {
    case "loading":
      return pageSkeleton;
    case "failed":
      return <ErrorNotice text={view.text} onRetry={() => void file.load()} />;
    case "closed":
      return (
        <EmptyState icon="file" title="No preview">
          {view.text}
        </EmptyState>
      );
    case "text":
      return <TextContent file={file} view={view} />;
    case "picture":
      return <Picture files={files} file={file} url={view.url} />;
    case "hex":
      return <HexContent file={file} view={view} />;
  }
}

function Picture({ files, file, url }: { files: FilesState; file: OpenedFile; url: string }) {
  // A new content of the file has another address.
  const [undrawable, setUndrawable] = useState<string | null>(null);
  if (undrawable === url) {
    const download = () => void downloadUrl(downloadAddress(files.session, file.entry));
    return <ErrorNotice text="This picture cannot be drawn." retryLabel="Download" onRetry={download} />;
  }
  return (
    <div class="file-picture" tabIndex={0} role="region" aria-label="Picture">
      <img src={url} alt={file.entry.name} onError={() => setUndrawable(url)} />
    </div>
  );
}

function FileFacts({ file, readOnly }: { file: OpenedFile; readOnly: boolean }) {
  const view = file.view.value;
  const total = view.kind === "text" || view.kind === "picture" || view.kind === "hex" ? view.total : file.entry.bytes;
  return (
    <footer class="file-facts">
      {file.entry.kind === "file" && <span>{bytes(total)}</span>}
      {file.entry.modified && <span>changed {relativeTime(file.entry.modified, now.value)}</span>}
      {file.entry.executable && <span>executable</span>}
      {view.kind === "text" && file.lineEnds !== "\n" && <span>{file.lineEnds === "mixed" ? "mixed line ends, read-only" : "CRLF"}</span>}
      {view.kind === "hex" && <span>binary</span>}
      {readOnly && <span>read-only</span>}
    </footer>
  );
}
