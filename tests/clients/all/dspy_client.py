"""DSPy: its language model for several APIs, signatures in two adapters, and an agent. DSPy knows the abilities of a
model by its name; those of a server of one's own are declared, as here for the JSON adapter and the agent."""
import functools
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched from elsewhere

import dspy
from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider

from flows import (AFTER_TOOL, ARGUMENTS, ASK_TOOL, CHOICES, QUESTION, TOM, Animal, call, called_once, equal, flow,
                   main, not_offered, say, tool_flows, weather)
from openai_flows import CHAT_TOOLS


class Describe(dspy.Signature):
    """Describe the animal."""

    question: str = dspy.InputField()
    animal: Animal = dspy.OutputField()


def declare_provider():
    access = AccessPolicy(provider="own-server", base_url="http://127.0.0.1")
    register_provider(ProviderDefinition.chat(access, compat=OpenAIChatCompat.preset("vllm")),
                      supports=ModelSupport(function_calling=True, response_schema=True))


def declared_model_of(endpoint):
    return dspy.LM("own-server/" + endpoint.model, api_base=endpoint.v1, api_key="none", cache=False, max_tokens=200,
                   num_retries=0)


def model_of(api, endpoint, max_tokens=200):
    options = {"api_key": "none", "cache": False, "max_tokens": max_tokens, "num_retries": 0}
    if api == "messages":
        return dspy.LM("anthropic/" + endpoint.model, api_base=endpoint.v1, **options)
    return dspy.LM("openai/" + endpoint.model, api_base=endpoint.v1, temperature=0,
                   model_type={"completions": "text"}.get(api, api), **options)


def fields(**texts):
    """An answer as the default adapter reads it."""
    return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in {**texts, "completed": ""}.items())


def text_of(output):
    return output["text"] if isinstance(output, dict) else output


def round_trip(api, servers, choice):
    model, messages = model_of(api, servers.scripted), [{"role": "user", "content": ASK_TOOL}]
    [answer] = model(messages=messages, tools=CHAT_TOOLS, tool_choice=choice)
    calls = [one if isinstance(one, dict) else one.model_dump() for one in answer["tool_calls"]]
    messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    for one in calls:
        result = weather(**json.loads(one["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": one["id"], "content": result})
    called_once()
    [end] = model(messages=messages, tools=CHAT_TOOLS)
    equal(text_of(end), AFTER_TOOL)


def declare(api):
    @flow(api, "plain")
    def plain(servers):
        [answer] = model_of(api, servers.real)(QUESTION)
        assert text_of(answer), answer

    @flow(api, "stream")
    async def stream(servers):
        predict = dspy.streamify(dspy.Predict("question -> answer"),
                                 stream_listeners=[dspy.streaming.StreamListener(signature_field_name="answer")])
        # DSPy returns no part of an answer that comes in one piece, as short answers do on a busy machine.
        wanted = " ".join(["It stands in Bern, near the river Aare."] * 40)
        with dspy.context(lm=model_of(api, servers.scripted, max_tokens=2000)):
            parts = [part async for part in predict(question="Where is it? " + say(fields(answer=wanted)))]
        equal(parts[-1].answer, wanted)
        # How much of the frame around the field comes with it depends on where the stream is divided.
        text = "".join(part.chunk for part in parts if isinstance(part, dspy.streaming.StreamResponse))
        assert text.strip().startswith(wanted), parts

    tool_flows(api, functools.partial(round_trip, api), **CHOICES["chat"])

    @flow(api, "structured")
    def structured(servers):
        script = say(fields(animal=TOM.model_dump_json()))
        with dspy.context(lm=model_of(api, servers.scripted)):
            equal(dspy.Predict(Describe)(question="Describe a cat. " + script).animal, TOM)


@flow("chat", "logprobs")
def logprobs(servers):
    [answer] = model_of("chat", servers.real)(QUESTION, logprobs=True, top_logprobs=2)
    tokens = answer["logprobs"]
    tokens = tokens["content"] if isinstance(tokens, dict) else tokens.content
    assert tokens, answer


@flow("completions", "plain")
def completions_plain(servers):
    [answer] = model_of("completions", servers.real)("The sky is")
    assert text_of(answer), answer


@flow("JSON adapter", "structured")
def json_adapter(servers):
    script = say(json.dumps({"animal": TOM.model_dump()}))
    with dspy.context(lm=declared_model_of(servers.scripted), adapter=dspy.JSONAdapter()):
        equal(dspy.Predict(Describe)(question="Describe a cat. " + script).animal, TOM)


@flow("agent", "auto")
def agent_auto(servers):
    script = say(call("weather", ARGUMENTS), call("submit", {"answer": AFTER_TOOL}))
    adapter = dspy.ChatAdapter(use_native_function_calling=True)
    with dspy.context(lm=declared_model_of(servers.scripted), adapter=adapter):
        agent = dspy.ReActV2("question -> answer", tools=[weather])
        equal(agent(question="How is the weather in Bern? " + script).answer, AFTER_TOOL)
    called_once()


declare_provider()
for one_api in ("chat", "responses", "messages"):
    declare(one_api)
not_offered("JSON adapter", "as the model below it", "plain", "stream", "auto", "required", "named", "logprobs")
not_offered("responses", "the client reads no logprobs from responses", "logprobs")
not_offered("messages", "Anthropic's API has no logprobs", "logprobs")
not_offered("completions", "DSPy only completes a prompt here", "stream", "auto", "required", "named", "structured",
            "logprobs")
not_offered("agent", "as the model below it", "plain", "stream", "required", "named", "structured", "logprobs")

if __name__ == "__main__":
    main()
