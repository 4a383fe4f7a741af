// Files of the message draft: uploading, uploaded, or failed.

import { bytes } from "../format";
import type { UploadList } from "../state/uploads";
import { Icon } from "./Icon";

export function Attachments({ uploads }: { uploads: UploadList }) {
  const all = uploads.all.value;
  return (
    <ul class="attachments" aria-label="Attached files">
      {all.map(({ id, name, size, progress, path, problem }) => (
        <li key={id} class={problem ? "attachment refused" : "attachment"}>
          <Icon name="file" />
          <span class="attachment-name" dir="auto" title={name}>
            {name}
          </span>
          {problem ? (
            <span role="alert">{problem}</span>
          ) : path ? (
            size !== null && <span class="muted">{bytes(size)}</span>
          ) : (
            <progress value={progress} max={1} aria-label={`Uploading ${name}`} />
          )}
          <button type="button" class="icon-button" aria-label={`Remove ${name}`} title="Remove" onClick={() => uploads.remove(id)}>
            <Icon name="cross" />
          </button>
        </li>
      ))}
      {all.some(({ problem }) => problem) && <li class="under">Remove failed files or attach them again.</li>}
    </ul>
  );
}
