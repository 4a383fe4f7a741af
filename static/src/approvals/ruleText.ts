// Text of a rule.

import type { CallRule } from "../wire/approvals";

/** Returns the calls that a rule matches, in words. */
export function ruleText({ tool, command, path, host, agent }: CallRule): string {
  const parts = [
    command !== undefined ? `\`${command}\`` : tool !== undefined ? `tool \`${tool}\`` : "",
    command !== undefined && tool !== undefined && tool !== "run" ? `with tool \`${tool}\`` : "",
    path !== undefined ? `on \`${path}\`` : "",
    host !== undefined ? `at \`${host}\`` : "",
    agent !== undefined ? `by agent \`${agent}\`` : "",
  ];
  return parts.filter(Boolean).join(" ") || "Every call";
}
