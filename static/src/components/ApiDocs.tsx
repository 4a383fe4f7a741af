// The REST API for people, from the document that machines read. Loaded when it is asked for.

import { useEffect, useState } from "preact/hooks";
import { groups, type Field, type Group, type Operation } from "../state/openapi";
import { getOpenApi } from "../wire/manage";
import { Problem } from "./Problem";
import { SidebarButton } from "./SidebarButton";

export function ApiDocs() {
  const [found, setFound] = useState<Group[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);

  const load = async () => {
    try {
      setFound(groups(await getOpenApi()));
      setProblem(null);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };

  useEffect(() => void load(), []);
  useEffect(() => {
    if (found && location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }, [found]);

  return (
    <div class="admin">
      <header class="session-header">
        <SidebarButton />
        <h1>REST API</h1>
        <a href="/api/openapi.json">openapi.json</a>
      </header>
      <div class="admin-body docs">
        {problem && <Problem text={problem} onRetry={() => void load()} />}
        {!found && !problem && <div class="skeleton tall" role="status" aria-label="Loading" />}
        {found && (
          <p class="muted">
            Every error is <code>{'{"error": {"code", "message"}}'}</code>. A browser that has opened the server’s link is
            signed in; a script sends <code>Authorization: Bearer $TOKEN</code>, and <code>greenroom token</code> prints
            the token. A write takes an <code>Idempotency-Key</code> where it says so.
          </p>
        )}
        {found?.map((group) => <Section key={group.name} group={group} />)}
      </div>
    </div>
  );
}

function Section({ group }: { group: Group }) {
  return (
    <section>
      <h2>{group.name}</h2>
      {group.operations.map((operation) => (
        <Entry key={operation.anchor} operation={operation} />
      ))}
    </section>
  );
}

function Entry({ operation }: { operation: Operation }) {
  const { anchor, method, path, summary, fields, answers, curl } = operation;
  return (
    <article id={anchor}>
      <h3>
        <a href={`#${anchor}`}>
          <span class="method">{method}</span> <code>{path}</code>
        </a>
      </h3>
      <p>{withCode(summary)}</p>
      {fields.length > 0 && <Fields fields={fields} />}
      <p class="muted">
        {answers.map(({ status, what }) => (
          <span key={status} class="answer">
            <strong>{status}</strong> {withCode(what)}
          </span>
        ))}
      </p>
      <pre tabIndex={0}>
        <code>{curl}</code>
      </pre>
    </article>
  );
}

/** What stands between backticks is code. */
function withCode(text: string) {
  return text.split("`").map((part, n) => (n % 2 === 1 ? <code key={n}>{part}</code> : part));
}

function Fields({ fields }: { fields: Field[] }) {
  return (
    <dl>
      {fields.map((field) => (
        <div key={`${field.where}/${field.name}`}>
          <dt>
            <code>{field.name}</code>
            <span class="muted">
              {[field.type, field.where, field.required ? "required" : ""].filter(Boolean).join(", ")}
            </span>
          </dt>
          <dd>{withCode(field.description)}</dd>
        </div>
      ))}
    </dl>
  );
}
