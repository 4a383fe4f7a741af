// Sign-in page, for a browser without a valid sign-in.

import { useEffect, useRef, useState } from "preact/hooks";
import { signIn } from "../wire/browsers";
import { RestError } from "../wire/rest";
import { onOtherSignIn } from "../wire/secret";
import { PlainPage } from "./PlainPage";

const WRONG_TOKEN = "That token is not valid here.";

export function SignedOut() {
  const field = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState("");
  const [checking, setChecking] = useState(false);

  // Drafts are stored, so a reload loses none.
  useEffect(() => onOtherSignIn(() => location.reload()), []);
  useEffect(() => field.current?.focus(), []);

  const submit = async (event: SubmitEvent) => {
    // The request goes by script: the page's policy allows no form to be sent.
    event.preventDefault();
    const token = field.current?.value.trim() ?? "";
    if (token === "" || checking) return field.current?.focus();
    setChecking(true);
    try {
      await signIn(token);
      location.reload();
    } catch (error) {
      setProblem(error instanceof RestError && error.status === 401 ? WRONG_TOKEN : (error as Error).message);
      setChecking(false);
      field.current?.select();
    }
  };

  return (
    <PlainPage title="Sign in">
      <p class="muted">
        Open the link that greenroom printed at its start, or enter the token. Print it with <code>greenroom token</code>.
      </p>
      <form class="sign-in" onSubmit={submit}>
        {/* Password managers store a token under the name of its server. */}
        <input class="visually-hidden" type="text" autocomplete="username" value={location.host} readOnly tabIndex={-1} aria-hidden="true" />
        <label for="token">Token</label>
        <input
          ref={field}
          id="token"
          class="field"
          type="password"
          autocomplete="current-password"
          spellcheck={false}
          required
          aria-invalid={problem !== ""}
          aria-describedby={problem ? "token-problem" : undefined}
          onInput={() => setProblem("")}
        />
        {problem && (
          <p id="token-problem" class="sign-in-problem" role="alert">
            {problem}
          </p>
        )}
        <button type="submit" class="button primary" disabled={checking}>
          Sign in
        </button>
      </form>
    </PlainPage>
  );
}
