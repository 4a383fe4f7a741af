// The files that come with a task; they are sent when it is.

import { Icon } from "./Icon";

interface Props {
  files: readonly File[];
  onChange: (files: readonly File[]) => void;
}

export function TaskFiles({ files, onChange }: Props) {
  return (
    <ul class="attachments" aria-label="Attached files">
      {files.map((file) => (
        <li key={file.name} class="attachment">
          <Icon name="file" />
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
    </ul>
  );
}
