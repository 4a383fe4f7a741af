// REST API reference, built from the OpenAPI document. Loaded on request.

import { useEffect, useState } from "preact/hooks";
import { basePath } from "../basePath";
import { downloadText } from "../dom/download";
import { apiGroups, type ApiField, type ApiGroup, type ApiOperation, type OpenApiDocument } from "../state/openapi";
import { getOpenApi } from "../wire/lazyRest";
import { ErrorNotice } from "./ErrorNotice";
import { SidebarButton } from "./SidebarButton";

export function ApiDocs() {
  const [found, setFound] = useState<ApiGroup[] | null>(null);
  const [source, setSource] = useState<OpenApiDocument | null>(null);
  const [problem, setProblem] = useState<string | null>(null);

  const load = async () => {
    try {
      const openApi = await getOpenApi();
      setFound(apiGroups(openApi, location.origin + basePath));
      setSource(openApi);
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
        {source && (
          <button type="button" class="link" onClick={() => downloadText("openapi.json", "application/json", JSON.stringify(source, null, 2))}>
            openapi.json
          </button>
        )}
      </header>
      <div class="admin-body docs">
        {problem && <ErrorNotice text={problem} onRetry={() => void load()} />}
        {!found && !problem && <div class="skeleton tall" role="status" aria-label="Loading" />}
        {found && (
          <p class="muted">
            Errors have the form <code>{'{"error": {"code", "message"}}'}</code>. Browsers sign in through the server’s
            link. Scripts send <code>Authorization: Bearer $TOKEN</code>; print the token with{" "}
            <code>greenroom token</code>. Writes accept an <code>Idempotency-Key</code> where listed.
          </p>
        )}
        {found?.map((group) => <Section key={group.name} group={group} />)}
      </div>
    </div>
  );
}

function Section({ group }: { group: ApiGroup }) {
  return (
    <section>
      <h2>{group.name}</h2>
      {group.operations.map((operation) => (
        <ApiOperationEntry key={operation.anchor} operation={operation} />
      ))}
    </section>
  );
}

function ApiOperationEntry({ operation }: { operation: ApiOperation }) {
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

/** Renders text between backticks as code. */
function withCode(text: string) {
  return text.split("`").map((part, n) => (n % 2 === 1 ? <code key={n}>{part}</code> : part));
}

function Fields({ fields }: { fields: ApiField[] }) {
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
