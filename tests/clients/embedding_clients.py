"""The official client of OpenAI, langchain-openai, litellm and plain HTTP for embeddings, scores and rankings.

Usage: embedding_clients.py http://HOST:PORT GOLDEN_FILE"""
import array
import base64
import json
import math
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched from elsewhere

import httpx2
import litellm
import openai
from langchain_openai import OpenAIEmbeddings

from checks import equal, run


def client_of(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


def near(got, wanted, most=2e-6):
    equal(len(got), len(wanted))
    for number, other in zip(got, wanted):
        if not abs(number - other) < most:
            raise AssertionError(f"got {number}, wanted {other}")


def unit(vector):
    length = math.sqrt(sum(number * number for number in vector))
    return [number / length for number in vector]


def golden_vectors(golden, dimensions=None):
    return [unit(one["last"][:dimensions]) for one in golden["embeddings"]]


def texts_of(golden):
    return [one["text"] for one in golden["embeddings"]]


def model_of(url):
    return client_of(url).models.list().data[0].id


def check_lists_are_base64_by_default(url, golden):
    answer = client_of(url).embeddings.create(model=model_of(url), input=texts_of(golden))
    equal([one.index for one in answer.data], list(range(len(answer.data))))
    for one, wanted in zip(answer.data, golden_vectors(golden)):
        near(one.embedding, wanted)
    tokens = sum(len(one["tokens"]) for one in golden["embeddings"])
    equal((answer.usage.prompt_tokens, answer.usage.total_tokens), (tokens, tokens))


def check_floats_and_base64_are_the_same_numbers(url, golden):
    client, model = client_of(url), model_of(url)
    for text in texts_of(golden):
        floats = client.embeddings.create(model=model, input=text, encoding_format="float").data[0].embedding
        coded = client.embeddings.create(model=model, input=text, encoding_format="base64").data[0].embedding
        numbers = array.array("f", base64.b64decode(coded)) if isinstance(coded, str) else coded
        equal(array.array("f", floats).tolist(), list(numbers))


def check_tokens_and_dimensions(url, golden):
    client, model = client_of(url), model_of(url)
    tokens = [one["tokens"] for one in golden["embeddings"]]
    for given, wanted in ((tokens, golden_vectors(golden, 12)), (tokens[2], golden_vectors(golden, 12)[2:3])):
        answer = client.embeddings.create(model=model, input=given, dimensions=12)
        equal(len(answer.data), len(wanted))
        for one, vector in zip(answer.data, wanted):
            near(one.embedding, vector)


def check_bad_requests_have_openais_errors(url, golden):
    client, model = client_of(url), model_of(url)
    for arguments, param in (({"input": ""}, "input"), ({"input": []}, "input"), ({"input": [[1], []]}, "input[1]"),
                             ({"input": "a", "dimensions": 65}, "dimensions"), ({"input": [600]}, "input[0]"),
                             ({"input": "a", "encoding_format": "int8"}, "encoding_format")):
        try:
            client.embeddings.create(model=model, **arguments)
        except openai.BadRequestError as error:
            equal(error.param, param)
            continue
        raise AssertionError(f"{arguments} was not refused")


async def check_the_asynchronous_client(url, golden):
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        answer = await client.embeddings.create(model=model_of(url), input=texts_of(golden))
        near(answer.data[3].embedding, golden_vectors(golden)[3])


def check_langchain(url, golden):
    embeddings = OpenAIEmbeddings(base_url=url + "/v1", api_key="none", model=model_of(url),
                                  check_embedding_ctx_length=False)
    for got, wanted in zip(embeddings.embed_documents(texts_of(golden)), golden_vectors(golden)):
        near(got, wanted)
    near(embeddings.embed_query(texts_of(golden)[1]), golden_vectors(golden)[1])


def check_litellm(url, golden):
    answer = litellm.embedding(model="openai/" + model_of(url), input=texts_of(golden), api_base=url + "/v1",
                               api_key="none", encoding_format="float")
    for one, wanted in zip(answer.data, golden_vectors(golden)):
        near(one["embedding"], wanted)


def check_litellm_ranks_as_jina_and_vllm(url, golden):
    query = golden["scores"][0]["query"]
    scores = {one["document"]: one["score"] for one in golden["scores"] if one["query"] == query}
    for provider in ("jina_ai", "hosted_vllm"):
        answer = litellm.rerank(model=f"{provider}/" + model_of(url), query=query, documents=list(scores), top_n=2,
                                api_base=url + "/v1/rerank" if provider == "jina_ai" else url + "/v1", api_key="none")
        wanted = sorted(scores.values(), reverse=True)
        near([one["relevance_score"] for one in answer.results], wanted, 1e-5)


def check_scores(url, golden):
    for one in golden["scores"]:
        body = {"model": model_of(url), "text_1": one["query"], "text_2": [one["document"]]}
        if one["instruction"]:
            body["instruction"] = one["instruction"]
        answer = httpx2.post(url + "/score", json=body).json()
        near([score["score"] for score in answer["data"]], [one["score"]], 1e-5)


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as file:
        run(dict(globals()), sys.argv[1], json.load(file))
