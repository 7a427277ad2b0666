"""lm-evaluation-harness: its models for the completions and chat APIs, with tasks of three questions made here."""
import contextlib
import json
import math
import os
import pathlib
import tempfile

from load_generator import OFFLINE

os.environ.update(OFFLINE)

import lm_eval
from lm_eval.tasks import TaskManager

from flows import equal, flow, main, not_offered

QUESTIONS = {"The capital of France is": "Paris", "The capital of Italy is": "Rome",
             "The capital of Spain is": "Madrid"}
TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
{rest}
"""
REST = {
    "generate_until": 'doc_to_target: " {{answer}}"\n'
                      'generation_kwargs:\n  until: ["\\n"]\n  max_gen_toks: 8\n'
                      'metric_list:\n  - metric: exact_match',
    "multiple_choice": 'doc_to_target: "{{choices.index(answer)}}"\n'
                       'doc_to_choice: "{{choices}}"\n'
                       'metric_list:\n  - metric: acc',
    "loglikelihood_rolling": 'doc_to_target: "{{question}} {{answer}}"\n'
                             'metric_list:\n  - metric: word_perplexity',
}


@contextlib.contextmanager
def task_folder(kind):
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "questions.jsonl")
        choices = list(QUESTIONS.values())
        lines = [json.dumps({"question": question, "answer": answer, "choices": choices})
                 for question, answer in QUESTIONS.items()]
        data.write_text("\n".join(lines) + "\n", encoding="utf-8")
        task = TASK.format(name="capitals_" + kind, data=data, kind=kind, rest=REST[kind])
        pathlib.Path(folder, f"capitals_{kind}.yaml").write_text(task, encoding="utf-8")
        yield folder


def samples_of(kind, model, arguments, **options):
    with task_folder(kind) as folder:
        results = lm_eval.simple_evaluate(
            model=model, model_args=arguments, tasks=["capitals_" + kind], bootstrap_iters=0, log_samples=True,
            task_manager=TaskManager(include_path=folder, include_defaults=False), **options)
    samples = results["samples"]["capitals_" + kind]
    equal(len(samples), len(QUESTIONS))
    return samples


def completions_of(servers, endpoint, **more):
    # Questions go as tokens of this tokenizer, so the model must be that of the tokenizer.
    return {"model": endpoint.model, "base_url": endpoint.v1 + "/completions", "tokenizer_backend": "huggingface",
            "tokenizer": servers.scripted_model, "max_retries": 1, **more}


@flow("local-completions", "plain")
def completions_plain(servers):
    for tokens in (True, False):
        arguments = completions_of(servers, servers.scripted, tokenized_requests=tokens, num_concurrent=2)
        samples_of("generate_until", "local-completions", arguments)


@flow("local-completions", "logprobs")
def completions_logprobs(servers):
    for tokens in (True, False):
        arguments = completions_of(servers, servers.scripted, tokenized_requests=tokens, batch_size=2)
        for sample in samples_of("multiple_choice", "local-completions", arguments):
            logprobs = [float(answer[0]) for answer in sample["filtered_resps"]]
            equal(len(logprobs), len(QUESTIONS))
            assert all(math.isfinite(one) and one <= 0 for one in logprobs), sample
    samples_of("loglikelihood_rolling", "local-completions", completions_of(servers, servers.scripted))


@flow("local-chat-completions", "plain")
def chat_plain(servers):
    arguments = {"model": servers.real.model, "base_url": servers.real.v1 + "/chat/completions", "max_retries": 1,
                 "num_concurrent": 2}
    for sample in samples_of("generate_until", "local-chat-completions", arguments, apply_chat_template=True):
        assert sample["resps"][0][0], sample


NO_FLOW = "the harness does not need this"
not_offered("local-completions", NO_FLOW, "stream", "auto", "required", "named", "structured")
not_offered("local-chat-completions", NO_FLOW, "stream", "auto", "required", "named", "structured")
not_offered("local-chat-completions", "the harness takes no logprobs from chats", "logprobs")

if __name__ == "__main__":
    main()
