// Rules about tool calls in the settings: those of the configuration, and those of projects.

import { ErrorNotice } from "../components/ErrorNotice";
import { listRules, removeProjectRule, type CallRule } from "../wire/approvals";
import { RestError } from "../wire/rest";
import { useFetched } from "./fetched";
import { RuleList } from "./RuleList";

export function ApprovalRules() {
  const { value, problem, reload, change } = useFetched(listRules);
  const { config = [], projects = [] } = value ?? {};
  const remove = ({ id = "" }: CallRule) => void change(() => ignoreMissing(removeProjectRule(id)));
  return (
    <section class="approval-rules" aria-label="Approval rules">
      <h3>Approval rules</h3>
      {problem && <ErrorNotice text={problem} onRetry={() => void reload()} />}
      {config.length > 0 && (
        <>
          <p class="muted">From the configuration of the server</p>
          <RuleList label="Rules of the server" rules={config} />
        </>
      )}
      {projects.map(({ source, rules }) => (
        <div key={source}>
          <p class="muted">
            Project <code dir="ltr">{source}</code>
          </p>
          <RuleList label={`Rules of ${source}`} rules={rules} onRemove={remove} />
        </div>
      ))}
      {value && config.length === 0 && projects.length === 0 && <p class="muted">No rules. A session's own rules are under "About this session".</p>}
    </section>
  );
}

/** Another tab may have removed the rule. */
async function ignoreMissing(removal: Promise<void>): Promise<void> {
  try {
    await removal;
  } catch (error) {
    if (!(error instanceof RestError && error.isNotFound)) throw error;
  }
}
