// Files of a new task, sent at its start.

import { Icon } from "./Icon";

interface TaskFilesProps {
  files: readonly File[];
  onChange: (files: readonly File[]) => void;
}

export function TaskFiles({ files, onChange }: TaskFilesProps) {
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
