// Files of the message draft: uploading, uploaded, or failed.

import { useEffect } from "preact/hooks";
import { bytes } from "../format";
import { isPicture, pictureNote } from "../state/pictures";
import { loadOptions } from "../state/serverOptions";
import type { UploadList } from "../state/uploads";
import { fileAddress } from "../wire/rest";
import { BacktickText } from "./BacktickText";
import { Icon } from "./Icon";
import { Thumbnail } from "./Thumbnail";

interface AttachmentsProps {
  uploads: UploadList;
  session: string;
  model: string | null;
}

export function Attachments({ uploads, session, model }: AttachmentsProps) {
  useEffect(() => void loadOptions(), []);
  const all = uploads.all.value;
  const note = pictureNote(model, all.map(({ name }) => name));
  return (
    <ul class="attachments" aria-label="Attached files">
      {all.map(({ id, name, size, progress, path, problem }) => (
        <li key={id} class={problem ? "attachment refused" : "attachment"}>
          {path && isPicture(path) ? <Thumbnail address={fileAddress(session, path)!} name={name} /> : <Icon name="file" />}
          <span class="attachment-name" dir="auto" title={name}>
            {name}
          </span>
          {problem ? (
            <span role="alert">
              <BacktickText text={problem} />
            </span>
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
      {note && <li class="under" role="status">{note}</li>}
      {all.some(({ problem }) => problem) && <li class="under">Remove failed files or attach them again.</li>}
    </ul>
  );
}
