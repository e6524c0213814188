"""What turns prompts into samples: clients, the embedded server, vLLM, and the model they run."""
