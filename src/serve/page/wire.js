// What goes to the server and comes from it: OpenAI's chat completions.

// messages: as app.js keeps them; set: {system, think, numbers, tools}.
export function requestBody(messages, set) {
  const out = [];
  if (set.system) out.push({ role: "system", content: set.system });
  for (const m of messages) {
    const calls = m.calls?.map(({ id, name, arguments: text }) => ({ id, type: "function", function: { name, arguments: text || "{}" } }));
    out.push({
      role: m.role, content: m.content,
      ...(m.reasoning && { reasoning_content: m.reasoning }),
      ...(calls && { tool_calls: calls }),
    });
    for (const { id, result } of m.calls ?? [])
      if (result !== undefined) out.push({ role: "tool", tool_call_id: id, content: result });
  }
  return {
    stream: true, stream_options: { include_usage: true }, messages: out, ...set.numbers,
    ...(set.tools && { tools: set.tools }),
    ...(set.think && { chat_template_kwargs: { enable_thinking: set.think === "on" } }),
  };
}

// The objects of a stream of server-sent events.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (held + value).split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// Adds a delta to an answer; false if there was nothing in it.
export function grown(answer, delta) {
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (delta.content) answer.content += delta.content;
  if (reasoning) answer.reasoning = (answer.reasoning ?? "") + reasoning;
  for (const part of delta.tool_calls ?? []) {
    answer.calls ??= [];
    const call = (answer.calls[part.index ?? answer.calls.length] ??= { id: "", name: "", arguments: "" });
    call.id ||= part.id ?? "";
    call.name ||= part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
  return Boolean(delta.content || reasoning || delta.tool_calls?.length);
}
