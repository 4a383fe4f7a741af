// OpenAPI document as rows for display. Pure.

/** Part of the document that is read. */
export interface OpenApiDocument {
  paths: Record<string, Record<string, OpenApiOperation>>;
  components?: { schemas?: Record<string, OpenApiSchema> };
}

export interface OpenApiOperation {
  tags?: string[];
  summary?: string;
  parameters?: { name: string; in: string; description?: string; required?: boolean; schema?: OpenApiSchema }[];
  requestBody?: { content?: Record<string, { schema?: OpenApiSchema }> };
  /** Answers by status. Answers that many operations share are references. */
  responses?: Record<
    string,
    { $ref?: string; description?: string; content?: Record<string, { schema?: OpenApiSchema }> }
  >;
}

export interface OpenApiSchema {
  $ref?: string;
  type?: string | string[];
  items?: OpenApiSchema;
  oneOf?: OpenApiSchema[];
  enum?: unknown[];
  description?: string;
  properties?: Record<string, OpenApiSchema>;
  required?: string[];
}

/** Parameter in the address, a header or the body. */
export interface ApiField {
  name: string;
  where: string;
  type: string;
  required: boolean;
  description: string;
}

export interface ApiOperation {
  /** Unique name in the document, for links. */
  anchor: string;
  method: string;
  path: string;
  summary: string;
  fields: ApiField[];
  answers: { status: string; what: string }[];
  curl: string;
}

export interface ApiGroup {
  name: string;
  operations: ApiOperation[];
}

const METHOD_ORDER = ["get", "post", "put", "patch", "delete"];
/** Tags listed first. */
const FIRST_TAGS = ["sessions", "journal"];

/**
 * Groups operations by tag, frequent tags first. Inside a tag, sorts by path, then by method.
 *
 * `server` is the origin with the base path, for the calls with `curl`.
 */
export function apiGroups(api: OpenApiDocument, server: string): ApiGroup[] {
  const found = new Map<string, ApiOperation[]>();
  for (const [path, methods] of Object.entries(api.paths)) {
    const known = METHOD_ORDER.filter((method) => methods[method]);
    for (const method of known) {
      const raw = methods[method]!;
      const tag = raw.tags?.[0] ?? "other";
      found.set(tag, [...(found.get(tag) ?? []), operation(api, server, method, path, raw)]);
    }
  }
  const rank = ({ name }: ApiGroup) => (FIRST_TAGS.indexOf(name) + 1 || FIRST_TAGS.length + 1);
  const all = [...found].map(([name, operations]) => ({ name, operations }));
  return all.sort((a, b) => rank(a) - rank(b));
}

function operation(api: OpenApiDocument, server: string, method: string, path: string, raw: OpenApiOperation): ApiOperation {
  const parameters = (raw.parameters ?? []).map((parameter) => ({
    name: parameter.name,
    where: parameter.in,
    type: typeName(parameter.schema),
    required: parameter.required ?? false,
    description: parameter.description ?? "",
  }));
  const bodies = Object.entries(raw.requestBody?.content ?? {});
  const [bodyType, { schema: body } = {}] = bodies.find(([type]) => type === "application/json") ?? bodies[0] ?? [];
  const fields = [...parameters, ...(body ? bodyFields(resolve(api, body)) : [])];
  return {
    anchor: `${method}${path.replace(/[^a-zA-Z0-9]+/g, "-").replace(/-$/, "")}`,
    method: method.toUpperCase(),
    path,
    summary: raw.summary ?? "",
    fields,
    answers: Object.entries(raw.responses ?? {}).map(([status, answer]) => ({
      status,
      what: [typeName(Object.values(answer.content ?? {})[0]?.schema), answer.description].filter(Boolean).join(": "),
    })),
    curl: curl(method, server + path, fields, bodyType),
  };
}

function bodyFields(schema: OpenApiSchema): ApiField[] {
  return Object.entries(schema.properties ?? {}).map(([name, property]) => ({
    name,
    where: "body",
    type: typeName(property),
    required: schema.required?.includes(name) ?? false,
    description: property.description ?? "",
  }));
}

function resolve(api: OpenApiDocument, schema: OpenApiSchema): OpenApiSchema {
  const name = schema.$ref?.split("/").pop();
  return (name && api.components?.schemas?.[name]) || schema;
}

/**
 * Formats a type, for example `string`, `View`, `SandboxRow[]`, `"jsonl" | "md"`. Empty if
 * unspecified.
 */
export function typeName(schema: OpenApiSchema | undefined): string {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop()!;
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.oneOf) return schema.oneOf.map(typeName).filter((name) => name && name !== "null").join(" | ");
  const types = [schema.type ?? []].flat().filter((type) => type !== "null");
  return types.map((type) => (type === "array" ? `${typeName(schema.items)}[]` : type)).join(" | ");
}

function curl(method: string, url: string, fields: ApiField[], bodyType: string | undefined): string {
  const address = url.replace(/\{(\w+)\}/g, (_, name: string) => `$${name.toUpperCase()}`);
  const parts = ["curl", '-H "Authorization: Bearer $TOKEN"'];
  if (method !== "get") parts.push(`-X ${method.toUpperCase()}`, `-H "Content-Type: ${bodyType ?? "application/json"}"`);
  if (bodyType === "application/json") {
    const needed = fields.filter((field) => field.where === "body" && field.required);
    parts.push(`-d '${JSON.stringify(Object.fromEntries(needed.map((field) => [field.name, "…"])))}'`);
  } else if (bodyType) {
    parts.push("--data-binary @FILE");
  }
  return [...parts, `"${address}"`].join(" ");
}
