// Files of a new task, sent at its start.

import { useEffect, useState } from "preact/hooks";
import { isPicture, pictureNote } from "../state/pictures";
import { Icon } from "./Icon";
import { Thumbnail } from "./Thumbnail";

interface TaskFilesProps {
  files: readonly File[];
  /** Chosen model. `undefined`: the server's default. */
  model: string | undefined;
  onChange: (files: readonly File[]) => void;
}

export function TaskFiles({ files, model, onChange }: TaskFilesProps) {
  const note = pictureNote(model, files.map(({ name }) => name));
  return (
    <ul class="attachments" aria-label="Attached files">
      {files.map((file) => (
        <li key={file.name} class="attachment">
          {isPicture(file.name) ? <LocalPicture key={file.lastModified} file={file} /> : <Icon name="file" />}
          <span class="attachment-name" dir="auto">
            {file.name}
          </span>
          <button
            type="button"
            class="icon-button"
            aria-label={`Remove ${file.name}`}
            title="Remove"
            onClick={() => onChange(files.filter((other) => other !== file))}
          >
            <Icon name="cross" />
          </button>
        </li>
      ))}
      {note && <li class="under" role="status">{note}</li>}
    </ul>
  );
}

/** Thumbnail of a file that no session has yet. */
function LocalPicture({ file }: { file: File }) {
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => {
    const made = URL.createObjectURL(file);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [file]);
  return address === null ? <Icon name="file" /> : <Thumbnail address={address} name={file.name} />;
}
