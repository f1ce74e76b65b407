"""Answers each line of standard input, all in one batch: python batch.py MODEL < questions.txt"""

import sys

import headrace

with headrace.LLM(sys.argv[1]) as llm:
    questions = [line.strip() for line in sys.stdin if line.strip()]
    conversations = [[{"role": "user", "content": question}] for question in questions]
    for question, answer in zip(questions, llm.generate(conversations, max_tokens=200), strict=True):
        print(f"{question}\n  {answer.text}\n")
