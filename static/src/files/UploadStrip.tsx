// Uploads below the tree: progress, and the reason of a rejected one.

import { bytes } from "../format";
import { Icon } from "../components/Icon";
import { FileName } from "./FileName";
import type { FolderUpload, FolderUploads } from "./folderUploads";

/** Number of waiting uploads that are listed. The others are counted. */
const SHOWN = 6;

export function UploadStrip({ uploads }: { uploads: FolderUploads }) {
  const all = uploads.all.value;
  const problem = uploads.problem.value;
  if (all.length === 0 && problem === "") return null;
  // Problems stay in view above what waits.
  const inOrder = [...all].sort((a, b) => Number(b.problem !== "") - Number(a.problem !== ""));
  return (
    <div class="file-uploads" aria-live="polite">
      {problem && (
        <p class="problem">
          <span>{problem}</span>
          <button type="button" class="button" onClick={() => (uploads.problem.value = "")}>
            Dismiss
          </button>
        </p>
      )}
      <ul>
        {inOrder.slice(0, SHOWN).map((upload) => (
          <UploadRow key={upload.id} upload={upload} uploads={uploads} />
        ))}
      </ul>
      {all.length > SHOWN && <p class="file-note">{all.length - SHOWN} more</p>}
    </div>
  );
}

function UploadRow({ upload, uploads }: { upload: FolderUpload; uploads: FolderUploads }) {
  const { id, target, file, progress, problem, exists } = upload;
  const name = target.path.slice(target.path.lastIndexOf("/") + 1);
  return (
    <li class={problem ? "file-upload failed" : "file-upload"}>
      <FileName name={name} encoded={target.encoded} />
      {problem ? <span class="file-problem">{problem}</span> : <progress value={progress} max={1} aria-label={`Upload of ${name}`} />}
      {!problem && <span class="file-size">{bytes(file.size)}</span>}
      {exists && (
        <button type="button" class="button" onClick={() => uploads.replace(upload)}>
          Replace
        </button>
      )}
      <button type="button" class="icon-button" aria-label={problem ? `Dismiss ${name}` : `Cancel the upload of ${name}`} onClick={() => uploads.remove(id)}>
        <Icon name="cross" />
      </button>
    </li>
  );
}
