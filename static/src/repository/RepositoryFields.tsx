// Repository of a new session: any address or path, with earlier ones and the server's own offered.

import { useEffect, useState } from "preact/hooks";
import { BacktickText } from "../components/BacktickText";
import type { TaskChoices } from "../state/startTask";
import { listRepositories, type OfferedRepositories } from "./repositoriesRest";

interface RepositoryFieldsProps {
  chosen: TaskChoices;
  onChange: (chosen: TaskChoices) => void;
}

export function RepositoryFields({ chosen, onChange }: RepositoryFieldsProps) {
  const [offered, setOffered] = useState<OfferedRepositories | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    listRepositories().then(setOffered, (error: Error) => setProblem(error.message));
  }, []);
  const { recent = [], sources = [] } = offered ?? {};

  const chooseRepository = (text: string) => {
    const known = recent.find(({ url }) => url === text);
    // A known repository brings its ref, as long as the user has written none.
    onChange({ ...chosen, repo: text.trim() || undefined, ref: chosen.ref ?? known?.ref ?? undefined });
  };
  return (
    <fieldset class="task-options repository-fields">
      <legend class="visually-hidden">Repository of the new session</legend>
      <label>
        <span>Repository</span>
        <input
          class="field"
          list="known-repositories"
          placeholder="https://… or a path"
          dir="ltr"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          value={chosen.repo ?? ""}
          onInput={(event) => chooseRepository(event.currentTarget.value)}
        />
        <datalist id="known-repositories">
          {knownRepositories({ recent, sources }).map((url) => (
            <option key={url} value={url} />
          ))}
        </datalist>
      </label>
      <label>
        <span>Ref</span>
        <input
          class="field"
          placeholder="Default branch"
          dir="ltr"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          value={chosen.ref ?? ""}
          onInput={(event) => onChange({ ...chosen, ref: event.currentTarget.value.trim() || undefined })}
        />
      </label>
      {recent.length > 0 && (
        <ul class="recent-repositories" aria-label="Recent repositories">
          {recent.map(({ url, ref }) => (
            <li key={`${url} ${ref}`}>
              <button type="button" class="link" onClick={() => onChange({ ...chosen, repo: url, ref: ref ?? undefined })}>
                <bdi>{url}</bdi>
                {ref !== null && <bdi class="muted">{ref}</bdi>}
              </button>
            </li>
          ))}
        </ul>
      )}
      {problem && (
        <p class="muted" role="status">
          Known repositories are missing: <BacktickText text={problem} />
        </p>
      )}
      <p class="muted">The server clones it into a branch of its own.</p>
    </fieldset>
  );
}

/** Returns the recent addresses and the paths below the sources, each once. */
export function knownRepositories({ recent, sources }: OfferedRepositories): string[] {
  const paths = sources.flatMap(({ path, repositories }) => repositories.map((name) => `${path}/${name}`));
  return [...new Set([...recent.map(({ url }) => url), ...paths])];
}
