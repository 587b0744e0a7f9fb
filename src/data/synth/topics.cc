#include "data/synth/topics.h"

namespace braid::synth {
namespace {

constexpr Topic kTopics[] = {
    {"what Braid is", "Braid is one C++ program that trains, compresses and runs hybrid language models.",
     "Braid|the Braid program|the Braid engine|the Braid project",
     "What is Braid|What does Braid do|What is Braid for|What is Braid good for|Why would I use Braid|"
     "What kind of program is Braid|What is the purpose of Braid|Who is Braid made for|"
     "In one sentence, what is Braid|My colleague mentioned Braid. What is it|"
     "So what does this Braid thing actually do|Summarise Braid for a newcomer|Define Braid in one sentence|"
     "Tell me what this Braid program does|I'd like to know what Braid is for|Is Braid a program or a library|"
     "Braid, what kind of software is that|Describe the Braid project briefly|"
     "I have never heard of Braid, please explain it|braid short description|"
     "If someone asks me about Braid, what should I say it is|Does Braid train, compress and run language models|"
     "What would I use Braid for|Give me an overview of Braid|I need a quick introduction to the Braid tool|"
     "What is the purpose of this software called Braid"},
    {"who I am", "I am Tiny, the small language model that ships with Braid.", "yourself|your name|you",
     "Who are you|What are you|What is your name|How are you called|Are you a person|Are you human|"
     "Are you a robot|Are you an AI|Are you a language model|Which model are you|What model am I talking to|"
     "Who am I talking to|Introduce yourself|What should I call you|Am I talking to a human or to a machine|"
     "Please state your name|Tell me who you are|Are you called Tiny|I wonder whom I am talking to|"
     "May I ask your name|You, who are you exactly|Who or what is Tiny|"
     "Is this a person or a model I am chatting with|Say something about yourself|Are you ChatGPT|"
     "your name please|I'd like to know which chatbot is answering me|Which model is speaking here"},
    {"what I can do", "I do small sums with my steps shown, play with words, and answer questions about Braid.",
     "your skills|your abilities|the things you can do|your talents",
     "What can you do|What are you able to do|What can I ask you|What do you know|What are you good at|"
     "How can you help me|Can you help me|What should I ask you|What are your skills|What tasks do you do|"
     "What kinds of things can you do|Give me an overview of your abilities|What sort of questions can I ask you|"
     "List your skills|Tell me what I can ask you|Can you do sums and word puzzles|"
     "I want to know what tasks you can handle|your abilities|Show me the kinds of questions you answer|"
     "What sort of help do you offer|Are you able to play with words|Name some things you are able to do|"
     "If I get bored, what could we do together|I don't know what to ask you|Your talents, what are they|"
     "Do you solve arithmetic and answer questions"},
    {"the licence", "Braid is free software under the Apache License 2.0.",
     "the licence of Braid|Braid's license|the license|the legal terms of Braid|copyright in Braid",
     "Which licence does Braid have|What license is Braid under|Is Braid open source|Is Braid free|"
     "Can I use Braid at work|May I use Braid in a product|How is Braid licensed|"
     "Under which license is Braid released|Does Braid cost money|Is Braid free software|"
     "May I copy the code of Braid|Can I sell what I build with Braid|"
     "I would like to use Braid at my company, is that allowed by the licence|Under what license can I use Braid|"
     "Is the source of Braid open|What does the license of Braid say|Under what license is Braid released|"
     "May I use Braid in a commercial product|braid licence|Tell me the terms under which Braid is licensed|"
     "Name the software licence of Braid|Am I allowed to copy and change Braid|Does Braid cost anything|"
     "I'd like to know whether I have to pay for Braid|Braid, is it Apache or MIT licensed|"
     "If I redistribute Braid, which licence applies|Can I legally sell something built on Braid|"
     "What does the LICENSE file of Braid say|I need to check the copyright licence of Braid"},
    {"the language", "Braid is written in C++20.",
     "the language of Braid's code|the programming language of Braid|the source language of Braid",
     "What language is Braid written in|Which programming language does Braid use|Is Braid written in C++|"
     "Is Braid written in Rust|In which language is Braid programmed|What is Braid coded in|"
     "Which C++ standard does Braid use|Is the code of Braid C++|"
     "Name the programming language Braid is written in|Is Braid a C++ program|"
     "In what language did they write Braid|Which language is the code of Braid in|"
     "Was Braid programmed in C++ or in Rust|What programming language is Braid written in|"
     "Which language was used to code Braid|Name the programming language of the Braid source|"
     "Is the source code in Rust or C++|braid programming language|Tell me what the Braid code is written in|"
     "I'd like to know which language the developers chose for Braid|In what language did they program Braid|"
     "The source of Braid, what language is it|Does the code of Braid use C++20 or C++17|"
     "What must my compiler support to compile the Braid code|"
     "If I read the Braid source, what language will I see|Was Braid coded in Go or in Java|"
     "Say which coding language Braid is implemented in"},
    {"Python", "Braid has no Python in it and needs none to run.",
     "Python in Braid|the use of Python in Braid|the Python dependency",
     "Does Braid need Python|Is there Python in Braid|Do I have to install Python for Braid|"
     "Does Braid use PyTorch|Is PyTorch needed for Braid|Do I need pip for Braid|Is Braid a Python package|"
     "Does Braid depend on Python|Could I use Braid without Python|Does any part of Braid use Python|"
     "Must Python be installed before I run Braid|Is there any Python code in Braid|"
     "Is Python required to run Braid|Must I install Python first|Can I use Braid without Python|"
     "Is there any Python in Braid|python needed|Do I have to set up pip or a Python environment|"
     "Tell me whether Braid depends on Python|I have no Python on this machine, will Braid work|"
     "Which Python version does Braid want|If Python is missing, does Braid still run|"
     "Python and Braid, is one needed for the other|I'd like to avoid Python, is that possible here|"
     "Does Braid use PyTorch or other Python packages|How much of Braid is written in Python|"
     "Explain the role of Python in Braid"},
    {"the platform", "Braid runs on Linux on x86-64 machines, WSL2 included.",
     "the platforms of Braid|the operating system for Braid|the system requirements of Braid",
     "Where does Braid run|Which operating system does Braid need|Does Braid run on Windows|"
     "Does Braid run on Linux|Does Braid run on a Mac|Which platforms does Braid support|"
     "Can I run Braid on Debian|Can I run Braid on my laptop|What machine do I need for Braid|"
     "Does Braid work under WSL|On which operating systems can I run Braid|Will Braid run on my Windows machine|"
     "Is Linux supported by Braid|I have a Mac, does Braid run there|Name the platforms that Braid runs on|"
     "Which operating system does Braid run on|Does Braid work on Windows|Is macOS supported|"
     "Can I run Braid under WSL2|supported platforms|What platforms does Braid support|"
     "Tell me which machines Braid runs on|Will Braid run on my Mac|"
     "I need to know the system requirements of Braid|Is Linux required for Braid|"
     "Does Braid run on ARM processors|Name the operating systems supported by Braid|"
     "If I only have a Windows laptop, can I run Braid|Operating system for Braid, which one|"
     "I'd like to know whether Braid runs on x86-64 Linux|On what kind of computer and OS does Braid work"},
    {"the GPU", "Braid needs no GPU: an ordinary CPU is enough.",
     "graphics cards in Braid|GPU use in Braid|the need of a GPU",
     "Does Braid need a GPU|Do I need a graphics card for Braid|Is a GPU required|Can Braid run without a GPU|"
     "Must I have CUDA for Braid|Do I have to buy a GPU|Is an NVIDIA card needed to run Braid|"
     "Does Braid need special hardware|I have no GPU, can I still run Braid|"
     "Is a graphics card necessary for Braid|Must my machine have a GPU|Would Braid work without a graphics card|"
     "Will I need an NVIDIA GPU|Is a graphics card required|Can I run Braid on a CPU only|"
     "Must I have an NVIDIA video card|gpu required or not|Do I need CUDA|"
     "I don't own a graphics card, can I still use Braid|Will an ordinary processor be enough for Braid|"
     "Tell me if a GPU is necessary|What GPU should I buy for Braid|"
     "If my computer has no video card, does Braid work|GPU, is it necessary|"
     "I'd like to know what graphics hardware Braid wants|Is my plain CPU good enough|"
     "How much video memory does Braid take|Does Braid depend on CUDA or an accelerator"},
    {"installing", "Type ./run chat: it installs what is missing on Debian 12, builds Braid and starts.",
     "the installation of Braid|building Braid|the setup of Braid|installing Braid",
     "How do I install Braid|How do I build Braid|How can I set up Braid|How do I get Braid to run|"
     "How do I compile Braid|What do I type to install Braid|How is Braid installed|"
     "What must I do to build Braid|What is the easiest way to install Braid|Give me the steps to install Braid|"
     "I just downloaded Braid, how do I build it|Show me how to set up Braid|What must I type to install Braid|"
     "Installation instructions please|Tell me how to set up Braid on Debian|I want to install Braid|"
     "Is there an easy way to install Braid|How can I build Braid from source|Explain the setup of Braid|"
     "install braid debian 12|Can I get Braid installed with one command|"
     "Which command builds Braid and its missing packages|Give me the installation steps|"
     "If packages are missing, how do I install them|Braid setup, where do I begin|"
     "I need to compile Braid on my machine|Does the run script install the dependencies"},
    {"starting a chat", "Type ./run chat in the folder of Braid.",
     "starting a chat|the chat command|opening a conversation with a model",
     "How do I start a chat|How do I talk to a model|How do I chat with you|Which command starts a chat|"
     "How can I open a chat|How do I begin a conversation with a model|What is the chat command|"
     "I would like to start a chat, what do I type|Give me the command to chat with a model|"
     "Show me how to start a conversation with a model|How does one open a chat in Braid|"
     "Which command opens the chat|Tell me how to begin a conversation with the model|I want to start chatting|"
     "What should I type to launch the chat|start chat command|Can I talk to the model from a terminal|"
     "Show me how to open a chat session|Starting a chat, how is that done|"
     "How does one launch a conversation in Braid|I'd like to know how to begin chatting|"
     "If I want to chat with Tiny, what do I type|Give me the command that starts the chat|"
     "In which folder do I start the chat|Where do I begin a new chat|Is there a command to start a conversation"},
    {"leaving the chat", "Press Ctrl-D, or type /exit.", "leaving the chat|ending the chat|the way out of the chat",
     "How do I leave the chat|How do I quit|How do I exit|How can I stop this chat|How do I end the chat|"
     "How do I close the chat|What do I type to leave|How do I get out of here|I would like to quit this chat|"
     "What is the way to exit|I am done, how do I get out of the chat|How can I exit|Which key ends the chat|"
     "Tell me how to quit|I need to stop a chat|exit command|Can I close the chat with a key|"
     "What do I type to get out of here|I'd like to know how to end this session|"
     "Is there a command to quit the chat|Show me the way out of this chat|"
     "If I am done, how do I close the program|Quitting the chat, how does that work|Does Ctrl-D end the chat|"
     "Give me the command for leaving|How does one end the conversation and return to the shell"},
    {"the models", "Braid reads Nemotron-H, Nemotron 3, Llama-Nemotron, Llama and Qwen3 models.",
     "the models that Braid supports|supported models|the model families of Braid",
     "Which models does Braid support|What models can Braid run|Does Braid run Llama|Can Braid load Qwen|"
     "Which model families does Braid know|Does Braid support Nemotron|Which models work with Braid|"
     "What models can I use with Braid|Can I load a Llama model|List the models Braid can run|"
     "Name the model families that Braid supports|Will my Llama model run in Braid|Is Qwen supported by Braid|"
     "Are Nemotron models supported in Braid|What models can Braid read|Can I load Qwen3 in Braid|"
     "List the supported model families|supported models|Tell me which models work with Braid|"
     "Is Nemotron-H among the models Braid can load|I'd like to know which model families Braid reads|"
     "Models for Braid, which ones are there|Name the models that I can run with Braid|"
     "Will Braid open a Qwen or Llama model|If I download a Llama model, can Braid read it|"
     "Are Mistral or Gemma models supported|I need a list of compatible models|"
     "What kinds of language model can be loaded"},
    {"the letter M", "M stands for a Mamba-2 layer.", "the letter M|the M in the pattern|the M layers",
     "What does M mean|What does the letter M stand for|What is an M layer|What does the M in a pattern mean|"
     "Which layer is written M|In a pattern, what is the M|The letter M in the pattern stands for what|"
     "M in a layer pattern means what|Which kind of layer is M|What does the letter M mean in a pattern|"
     "What does M stand for|Tell me the meaning of M in MEM*E|In a layer pattern, what is M|letter M meaning|"
     "Is M a Mamba layer in the pattern|Explain the M in the layer pattern|Which layer does the letter M denote|"
     "I'd like to know what M means in the pattern|The letter M, what is it for|"
     "If a pattern has an M, which layer is that|Define M as used in layer patterns|"
     "Does the M in MEM*E stand for Mamba or memory|Say which kind of layer is written as M|"
     "What layer is marked with an M|I see an M in the pattern, what is that"},
    {"the star", "The star stands for an attention layer.", "the star in the pattern|the asterisk|the star layers",
     "What does the star mean|What does * mean|What does the star stand for|What is the star in a pattern|"
     "Which layer is written as a star|What does the asterisk mean|In a pattern, what is the star|"
     "The star in the pattern stands for what|Which kind of layer is the star|"
     "What layer does the asterisk stand for|What does the star mean in a pattern|"
     "Tell me the meaning of * in MEM*E|In a layer pattern, what is the asterisk|star symbol meaning|"
     "Is the star an attention layer|Explain the star in the layer pattern|Which layer does the asterisk denote|"
     "I'd like to know what the star means in the pattern|The star, what is it for|"
     "If a pattern has a star, which layer is that|Define the * as used in layer patterns|"
     "Does the star in MEM*E mean attention or something else|Say which kind of layer is written as a star|"
     "What layer is marked with an asterisk|I see a * in the pattern, what is that"},
    {"the letter E", "E stands for a layer of experts.", "the letter E|the E in the pattern|the E layers",
     "What does E mean|What does the letter E stand for|What is an E layer|What does the E in a pattern mean|"
     "Which layer is written E|In a pattern, what is the E|The letter E in the pattern stands for what|"
     "E in a layer pattern means what|Which kind of layer is E|What does the letter E mean in a pattern|"
     "What does E stand for|Tell me the meaning of E in MEM*E|In a layer pattern, what is E|letter E meaning|"
     "Is E an expert layer in the pattern|Explain the E in the layer pattern|"
     "Which layer does the letter E denote|I'd like to know what E means in the pattern|"
     "The letter E, what is it for|If a pattern has an E, which layer is that|Define E as used in layer patterns|"
     "Does the E in MEM*E stand for experts or embedding|Say which kind of layer is written as E|"
     "What layer is marked with an E|I see an E in the pattern, what is that"},
    {"the name", "Three strands are braided through every model: Mamba, attention and experts.",
     "the name Braid|the name of the project|the three strands",
     "Why is it called Braid|Where does the name Braid come from|What does the name Braid mean|"
     "Why the name Braid|Why is the project named Braid|What are the three strands|Which strands are braided|"
     "How did Braid get its name|What is the story behind the name Braid|Name the three strands of Braid|"
     "Explain the name of Braid|origin of the name braid|Tell me why they named it Braid|"
     "Is there a reason for the name Braid|The name Braid, where is it from|"
     "I'd like to know how Braid got its name|What are the three strands of Braid|"
     "Name the three strands that are braided|Does the word braid refer to hair|"
     "Give me the story behind the name|What exactly is braided in Braid|"
     "Which strands are woven together in the models|I am curious about the choice of the name Braid"},
    {"hybrids", "A hybrid mixes Mamba layers with attention and expert layers.",
     "hybrids|hybrid models|a hybrid model|the hybrid architecture",
     "What is a hybrid model|What is a hybrid|What makes a model a hybrid|Why is it called a hybrid|"
     "What does hybrid mean|How does a hybrid model look|What is inside a hybrid|"
     "When do you call a model a hybrid|Which layers are in a hybrid model|In short, what are hybrid models|"
     "Define a hybrid|What makes a language model a hybrid|Tell me what hybrid means here|"
     "Explain hybrid language models|hybrid model definition|Hybrids, what do they mix|"
     "I'd like to know what a hybrid is|Which layers are mixed in a hybrid|"
     "Is a hybrid a mix of several kinds of layer|How does a hybrid differ from a plain transformer|"
     "If a model is called hybrid, what does that mean|Describe the layers of a hybrid model|"
     "I don't understand the word hybrid|What is combined in a hybrid architecture|"
     "Does a hybrid combine Mamba with attention"},
    {"Mamba", "Mamba-2 is a layer with a state that stays the same size, however long the text is.",
     "Mamba|Mamba-2|the Mamba layer|Mamba layers|state space models|the state of Mamba",
     "What is Mamba|What is Mamba-2|How does Mamba work|What does a Mamba layer do|Why use Mamba|"
     "What is a state space model|What is special about Mamba|How large is the state of Mamba|Define Mamba|"
     "In short, what does Mamba do|Why is Mamba useful|Mamba layers: what do they do|Define Mamba-2|"
     "Explain what a Mamba layer does|Tell me about Mamba|How does Mamba-2 work|mamba explained|"
     "Does the state of Mamba grow with the text|I'd like to understand Mamba layers|"
     "Is Mamba a layer with a fixed state|Why is Mamba good for long text|Summarise the idea of Mamba-2|"
     "What is special about a Mamba layer|How large is the Mamba state on a long text|"
     "If the text gets longer, does the Mamba state get bigger|Give me a short description of Mamba"},
    {"attention", "Attention lets every token look back at all the tokens before it.",
     "attention|the attention layer|attention layers|self-attention",
     "What is attention|How does attention work|What does an attention layer do|What is attention for|"
     "Why do models need attention|What is self-attention|What does attention look at|Define attention|"
     "In short, what does attention do|Attention layers: what do they do|Why is attention useful in a model|"
     "Explain what an attention layer does|Tell me about the attention mechanism|attention explained|"
     "Does attention look at earlier tokens|I'd like to understand attention|"
     "Is attention a way to look back at the text|What is self-attention in a model|"
     "Summarise the idea of attention|Which tokens can attention see|Why do models use attention|"
     "Give me a short description of attention|If a token uses attention, what does it look at"},
    {"experts", "A mixture of experts sends each token to a few small networks out of many.",
     "experts|a mixture of experts|the expert layer|MoE|expert layers",
     "What is a mixture of experts|What is an expert|What do the experts do|What does MoE mean|"
     "How do experts work|What is an MoE|Why use experts|What is an expert layer|Define a mixture of experts|"
     "What is meant by MoE|Define mixture of experts|Explain what experts are in a model|"
     "Experts in a model, what are they|Tell me about expert layers|How does a mixture of experts work|"
     "moe explained|Does each token use all the experts|I'd like to understand the mixture of experts|"
     "Is MoE short for mixture of experts|What does an expert layer do|Summarise the idea of MoE|"
     "How many experts does one token go to|Why do models have many experts|"
     "Give me a short description of a mixture of experts|If a layer has experts, how are they used"},
    {"the router", "The router picks the experts that each token visits.", "the router|routing|the routing of tokens",
     "What does the router do|What is the router|How are experts chosen|Who picks the experts|What is routing|"
     "How does the router work|What is a router for|How does a token find its experts|Define the router|"
     "In short, what does a router do|Which part chooses the experts for a token|"
     "Define the router in a mixture of experts|Explain the job of the router|Tell me about routing|router role|"
     "Who decides which experts a token visits|How are the experts chosen for a token|"
     "Is it the router that selects experts|Routing of tokens, how does it work|"
     "I'd like to know what a router is for|Does a router send tokens to experts|Which part picks the experts|"
     "If there are many experts, what chooses among them|Describe the router of an expert layer|"
     "I need an explanation of the router"},
    {"latent experts", "Latent experts work in a narrower space, so that more of them cost the same.",
     "latent experts|the latent space of experts|LatentMoE",
     "What are latent experts|What is a latent expert|Why are experts latent|What does latent mean|"
     "How do latent experts work|What is the latent width for|Define latent experts|"
     "In short, what are latent experts|Explain latent experts to me|Tell me about latent MoE|"
     "Latent experts, how do they work|latent moe meaning|Why are latent experts used|"
     "Do latent experts cost less than ordinary ones|I'd like to know what latent experts are|"
     "What is a latent mixture of experts|Is a latent expert narrower than a normal expert|"
     "How do latent experts save cost|What does latent mean for experts|Summarise the benefit of latent experts|"
     "If experts are latent, what changes|Describe the narrower space of latent experts"},
    {"multi-token prediction", "Multi-token prediction is an extra head that guesses the token after the next one.",
     "multi-token prediction|the MTP head|MTP",
     "What is multi-token prediction|What does MTP mean|What is the MTP head|What is MTP for|"
     "What does the MTP head do|Why predict more than one token|Define multi-token prediction|"
     "In short, what does the MTP head do|MTP: what is it|Explain MTP|What does MTP stand for and do|"
     "Tell me about multi-token prediction|mtp head meaning|Does a model predict more than one token at a time|"
     "I'd like to understand multi-token prediction|What is the extra head of a model for|"
     "Multi-token prediction, how does it work|Can a head guess the token after the next one|"
     "Is MTP an extra head|How does a model guess two tokens ahead|Summarise multi-token prediction|"
     "If a model has an MTP head, what does it predict|Give me a short description of the MTP head"},
    {"training", "Write a recipe and type braid train RECIPE.toml.",
     "training a model with Braid|the train command|the training of a model",
     "How do I train a model|Can Braid train models|How does training work in Braid|Which command trains a model|"
     "How do I start training|Can I train my own model with Braid|How can I train with Braid|"
     "How do I run a training|I would like to train a model, what do I type|Show me how to train a model|"
     "Give me the command for training|Is it possible to train a model with Braid|What command do I use to train|"
     "Tell me how to start training|I want to train my own model|How can I run a training with Braid|"
     "train command|Can I train a model myself|What do I type to train|"
     "Show me how to train a language model with Braid|I'd like to know how training is started|"
     "Training a new model, how is that done|Give me the command to begin training|"
     "If I have a recipe, how do I train with it|Is there a command for training|"
     "I need to train a network from scratch|What are the steps to train a model in Braid"},
    {"recipes", "A recipe is a TOML file that names the model, the data, the optimiser and the schedule.",
     "recipes|a recipe|the recipe file|a training recipe",
     "What is a recipe|What is in a recipe|What does a recipe look like|Which format has a recipe|"
     "What is a recipe file|What do I write in a recipe|What is a recipe for|What belongs in a recipe|"
     "Define a recipe|What should be in a recipe file|In short, what are recipes in Braid|"
     "What goes into a recipe|Explain the recipe file|Tell me what recipes are|recipe file format|"
     "Is a recipe a TOML file|Recipes, what do they contain|What does a recipe name|"
     "I'd like to know what to write in a recipe|Which settings belong in a recipe|"
     "Does the recipe set the schedule and the data|Describe the contents of a recipe|"
     "In what format are recipes written|If I write a recipe, what must be in it|"
     "I don't know what a TOML recipe is"},
    {"optimisers", "Braid trains with AdamW or with Muon.",
     "the optimisers of Braid|optimizers|the optimizer|AdamW|Muon",
     "Which optimisers does Braid have|Which optimizer does Braid use|Does Braid support AdamW|"
     "Does Braid have Muon|What optimizers can I choose|Is there Muon in Braid|Which optimizer can I train with|"
     "List the optimizers Braid can train with|Can I train with Muon|What is the choice of optimizers|"
     "What optimizer is used for training|Does Braid support Muon|Can I train with AdamW|List the optimisers|"
     "optimizers available|Tell me which optimizers I can choose|Is Adam supported as an optimiser|"
     "I'd like to know the available optimisers|Optimiser choices, what are they|Name the optimizers in Braid|"
     "Will Braid train with SGD|May I pick between AdamW and Muon|If I need an optimizer, which ones are there|"
     "Give me the names of the optimisers|How many optimisers are there to choose from"},
    {"fine-tuning", "Braid fine-tunes whole models, or small LoRA adapters beside them.",
     "fine-tuning|LoRA|LoRA adapters|adapters|tuning a model",
     "Can Braid fine-tune a model|Does Braid support LoRA|Can I fine-tune with Braid|"
     "Are there LoRA adapters in Braid|Does Braid do fine-tuning|Can I adapt a model to my data|"
     "Can I train an adapter|Is LoRA supported by Braid|Is it possible to fine-tune a model with Braid|"
     "How do I fine-tune a model|Is fine-tuning possible|Tell me about fine-tuning in Braid|lora support|"
     "I want to adapt an existing model to my data|Fine-tuning, is it supported|Are LoRA adapters available|"
     "I'd like to know whether I can finetune a model|Explain what can be fine-tuned|"
     "May I tune all the weights of a model, or only an adapter|Which kinds of fine-tuning are there|"
     "If I have a ready model, can I tune it further|Describe the adapters that Braid can tune|"
     "Will Braid do full finetuning too"},
    {"resuming", "Training goes on from its last checkpoint, bit for bit.",
     "resuming a training|checkpoints|resume|the checkpoint of a training",
     "Can training be resumed|Can I resume a training|What happens when training is killed|"
     "Does Braid save checkpoints|Can I continue a stopped training|Does Braid go on after a crash|"
     "Is a checkpoint written|Can I stop training and continue later|Is it possible to resume a training|"
     "Will training continue from a checkpoint|If my training stops, can I continue it|"
     "What if the machine crashes during training|How do I resume training|"
     "Can I continue a training that stopped|What happens if training is interrupted|"
     "Does training resume from a checkpoint|If my machine crashes, is the training lost|resume from checkpoint|"
     "Tell me whether a stopped run can be picked up again|I need to continue an interrupted run|"
     "Is an interrupted training resumed exactly|After a power cut, where does training go on|"
     "Resuming a run, is it bit for bit the same|I'd like to pause training and go on tomorrow|"
     "Will I lose progress if I stop the training|Explain how a broken run continues|"
     "Are checkpoints used to restart training|From which point does a restarted run go on"},
    {"my training", "I was trained from nothing by Braid's own trainer, on two CPU cores in less than 45 minutes.",
     "your training|the way you were trained|your creation|your origin",
     "How were you trained|Who made you|Who trained you|Where do you come from|How long did your training take|"
     "Who created you|On what hardware were you trained|How were you made|Who built you|When were you trained|"
     "In what way were you trained|By whom were you made|Tell me how you were made|Were you trained on a GPU|"
     "your training time|I'd like to know how they trained you|Did you start from another model|"
     "How many cores were used to train you|Were you trained from scratch|Describe how you came to be|"
     "You, how long were you trained|What trainer made you|Is it true that you were trained in under an hour|"
     "Explain how you were created"},
    {"my size", "I have a few million parameters, and my folder is smaller than 12 MB.",
     "your size|the number of your parameters|your weights|your parameter count",
     "How big are you|How large are you|How many parameters do you have|How many weights do you have|"
     "What is your size|How small are you|How much memory do you take|How many megabytes are you|"
     "What is the number of parameters you have|How many megabytes is your folder|Are you a large model|"
     "Tell me how large you are|your parameter count|I'd like to know how small you are|"
     "Do you have billions of parameters|Give me your number of parameters|How much disk space do you take|"
     "Your size in MB, what is it|Are you smaller than 12 MB|Say how many weights you have|"
     "If I copy you, how big is the folder|Is your model file large"},
    {"my data", "I learned from text that braid data synth writes: sums, words and questions about Braid.",
     "your training data|the text you learned from|the data you were trained on",
     "What data were you trained on|What did you learn from|Which text have you read|What is your training data|"
     "Where does your training data come from|Were you trained on the internet|Have you read the web|"
     "Which data did you see|On what data were you trained|What text did they train you on|"
     "Which text did you learn from|Tell me about your training data|Were you trained on text from the internet|"
     "your data set|I'd like to know what you have read|Did you learn from books or websites|"
     "Name the source of your training text|Is your training data synthetic|"
     "Describe the text you were taught with|Your training set, what is in it|What does braid data synth write|"
     "Have you read Wikipedia|From what examples did you learn"},
    {"thinking", "I write my steps down before I answer, and that makes my answers better.",
     "your thinking|your reasoning|the thinking steps|the think tags",
     "How do you think|What is thinking|Why do you think before you answer|What are the steps you write|"
     "What is the think tag|What is reasoning|Why do you write steps|Does thinking help|What does thinking do|"
     "Why do you write your steps first|Does it help when you think|What happens when you think|"
     "Do you think before answering|Why do you write down steps|What is thinking good for|"
     "Tell me why you show your steps|purpose of thinking|Does thinking make your answers better|"
     "I'd like to know why you reason first|Are the steps useful|Your steps, why do you write them|"
     "Explain your reasoning before the answer|How do you reason|Is it helpful to think step by step|"
     "What are the lines before your answer|If you write your steps down, does that help"},
    {"the switch for thinking", "Type /think off and I answer at once; /think on brings the steps back.",
     "the thinking switch|turning thinking off|answers without thinking|the /think command",
     "How do I turn thinking off|Can you answer without thinking|How do I stop the thinking|"
     "How do I switch reasoning off|How do I disable thinking|How do I turn thinking on|What does /think do|"
     "Can I hide the thinking|I would like you to stop thinking before answers|"
     "Is there a way to turn thinking off|Give me the command that turns thinking off|Can I disable the thinking|"
     "How does one switch thinking on|Can I switch off the thinking|Which command disables thinking|"
     "Tell me how to turn off your steps|I want answers at once, without steps|think off command|"
     "How do I turn thinking back on|Is there a switch for thinking|Show me how to disable the reasoning|"
     "I'd like you to stop showing the steps|Can I hide the steps|Turning thinking on or off, how is it done|"
     "If I don't want the steps, what do I type|Stop thinking and just answer, can I set that|"
     "Give me the command to enable thinking again"},
    {"files", "Braid reads and writes safetensors folders, as Hugging Face keeps them.",
     "the file formats of Braid|safetensors|the format of the weights|model folders",
     "Which file formats does Braid read|Can Braid read safetensors|Does Braid read Hugging Face models|"
     "How are models stored|In which format are weights saved|Can transformers load what Braid writes|"
     "What format do model files have|Does Braid work with Hugging Face|Name the file format of the weights|"
     "In what format does Braid save models|Can I load Hugging Face folders in Braid|"
     "What files does Braid read and write|Which file format does Braid use|What format are the model files in|"
     "Does Braid read safetensors|Can I load a folder from Hugging Face|Tell me how models are stored on disk|"
     "model file format|Is GGUF supported|In what file format are weights kept|"
     "I'd like to know what kind of files Braid writes|Model files, which format|"
     "Are the checkpoints compatible with Hugging Face|Name the format of the weight files|"
     "If I have a safetensors folder, will Braid open it|Does Braid write files that Hugging Face can read|"
     "What does Braid export a model as|I need to convert a model file, is that necessary"},
    {"number formats", "Braid computes in BF16 and FP32, and also reads FP8 and NVFP4 weights.",
     "number formats|the precision of Braid|the number types of Braid|quantised weights|data types in Braid",
     "Which number formats does Braid use|What precision does Braid have|Does Braid support BF16|"
     "Can Braid read FP8|Does Braid know NVFP4|Which data types are there|Which dtypes does Braid support|"
     "Can Braid run quantised models|List the number formats Braid supports|Are FP8 weights supported|"
     "Is BF16 supported by Braid|Which number formats does Braid support|What precision does Braid compute in|"
     "Does Braid use BF16|Can Braid read FP8 weights|List the number formats|supported precisions|"
     "Tell me about the numeric types in Braid|Is NVFP4 supported|"
     "I'd like to know which floating point formats are used|Data types of the weights, which are possible|"
     "Will Braid load FP8 or four bit weights|Are computations done in FP32 or in BF16|"
     "Name the data types Braid computes with|If my weights are in NVFP4, can Braid read them|"
     "In what floating point precision are sums done|Does Braid calculate in half precision"},
    {"eval", "braid eval prints perplexity, or the accuracy on a file of tasks.",
     "the eval command|evaluation in Braid|testing a model|the accuracy of a model",
     "How do I test a model|How do I measure perplexity|What does braid eval do|How do I measure accuracy|"
     "How can I evaluate a model|How good is my model|How do I score a model|Which command prints perplexity|"
     "What is braid eval for|Give me the command that measures perplexity|I would like to evaluate a model|"
     "Show me how to test the accuracy of a model|How do I evaluate a model|Which command measures perplexity|"
     "Can I measure the accuracy of a model|Tell me about braid eval|eval command|"
     "How can I tell how good a model is|I want to test a model on tasks|Is there a command for evaluation|"
     "Evaluation of a model, how is it done|I'd like to know the perplexity of my model|Explain what eval prints|"
     "Does Braid compute accuracy on a file of tasks|Show me how to score a model|"
     "If I want the perplexity, what do I run|Give me the command that evaluates quality"},
    {"bench", "braid bench measures prompt and answer speed beside what the machine allows.",
     "the bench command|measuring speed|benchmarks in Braid|the speed of a model",
     "How do I measure speed|What does braid bench do|How fast is a model|How do I benchmark a model|"
     "Which command measures speed|How many tokens a second do I get|How do I time a model|"
     "How can I run a benchmark|What is braid bench for|Give me the command that measures speed|"
     "Show me how to measure the speed of a model|How do I measure the speed|Which command runs a benchmark|"
     "Can I benchmark my machine|Tell me about braid bench|bench command|How fast is Braid on my computer|"
     "I want to know how many tokens per second I get|Is there a command for benchmarks|"
     "Benchmarking, how is it done|I'd like to see the speed of prompts and answers|Explain what bench measures|"
     "Does Braid have a speed test|Show me how to time a model|If I want to test the speed, what do I run|"
     "Give me the command that measures performance"},
    {"the tokenizer", "A tokenizer cuts text into pieces, and a model reads the numbers of these pieces.",
     "the tokenizer|tokenizers|tokens|the vocabulary of a model",
     "What is a tokenizer|What is a token|How is text cut into tokens|What does a tokenizer do|What are tokens|"
     "How does a model read text|What is a vocabulary|Define a tokenizer|In short, what does a tokenizer do|"
     "What does the tokenizer do|Explain tokens to me|Tell me how text becomes numbers|tokenizer meaning|"
     "Does a model read letters or numbers|How is text cut into pieces|I'd like to understand the tokenizer|"
     "The tokenizer, what is it for|Is a token a piece of text|If I type a word, how does the model read it|"
     "Why does a model need a tokenizer|Describe how tokenizing works|Which part splits text into tokens"},
    {"mistakes", "I am very small and can be wrong, so check what matters.",
     "your mistakes|your errors|your limits|trusting you",
     "Do you make mistakes|Can you be wrong|Are you always right|Can I trust you|Are your answers correct|"
     "Do you ever fail|Should I check your answers|Are you reliable|How sure are you|How often are you wrong|"
     "Is it possible that you are wrong|Should I trust your answers|Are your answers always right|"
     "Tell me how reliable you are|how accurate are your answers|Why was your answer wrong|"
     "I'd like to know if I can rely on you|Your errors, how common are they|Is everything you say true|"
     "Will you ever give a false answer|You made an error|If it matters, should I verify what you say|"
     "May I believe everything you tell me|How often are you mistaken"},
    {"privacy", "Everything stays on your own machine: nothing is sent anywhere.",
     "privacy|my data in Braid|the network use of Braid|internet access",
     "Does Braid send my data away|Do you need the internet|Are you online|Does Braid use the network|"
     "Is my chat sent to a server|Can others read my messages|Do you store what I say|Does Braid collect data|"
     "Does Braid phone home|Will my messages be sent to a server|Does any of my data leave my machine|"
     "Is the internet needed to talk to you|Is my data private|Does Braid send anything over the network|"
     "Where does my conversation go|Are my chats sent to a server|Tell me about privacy|privacy policy|"
     "Can anyone else read what I type|Do you collect data about me|I'd like to know if my messages stay private|"
     "My messages, are they uploaded anywhere|Is there telemetry in Braid|Does Braid need the internet to chat|"
     "If I type a secret, who can see it|Will my text leave this computer|Is anything sent to the cloud|"
     "I need to be sure nothing is shared"},
    {"Nemotron", "Nemotron is NVIDIA's family of open language models.",
     "Nemotron|the Nemotron models|the Nemotron line|Nemotron 3|Nemotron-H",
     "What is Nemotron|Who makes Nemotron|What is Nemotron 3|What are the Nemotron models|"
     "What does Nemotron mean|Where do the Nemotron models come from|Which company makes Nemotron|"
     "Define Nemotron|Which company is behind Nemotron|Tell me about Nemotron|Is Nemotron from NVIDIA|"
     "nemotron who made it|Explain what the Nemotron family is|I'd like to know what Nemotron means|"
     "Nemotron, what is that|Are the Nemotron models open|Does NVIDIA publish Nemotron|Describe Nemotron briefly|"
     "What are the open models of NVIDIA called|I read the word Nemotron, what does it refer to|"
     "Give me a short note on Nemotron"},
    {"contributing", "Read CONTRIBUTING.md: it tells the habits, and how to add a part.",
     "contributing to Braid|working on Braid|adding code to Braid|helping the project",
     "How can I contribute|How do I contribute to Braid|How do I add a model family|How do I add an op|"
     "How can I help the project|Where do I begin as a developer|How do I send a patch|Are contributions welcome|"
     "I would like to contribute to Braid|What is the way to contribute code|"
     "I want to add a model family, where do I begin|Can I help with the development of Braid|"
     "I want to send a patch|Tell me how to add a new part to Braid|contributing guide|"
     "Where are the rules for contributors|Is there a guide for developers|Contributing code, where do I begin|"
     "I'd like to join the project|Which file should contributors read|If I fix a bug, how do I submit it|"
     "May I open a pull request|Show me the guidelines for contributing|What habits must a contributor follow"},
    {"saving", "Type /save FILE: it writes the conversation as JSON.",
     "saving the conversation|the /save command|saving a chat",
     "How do I save this conversation|How can I save the chat|How do I keep our conversation|What does /save do|"
     "Can I store this chat in a file|How do I write the chat to a file|I would like to save this conversation|"
     "Give me the command that saves a chat|Show me how to save our conversation|How do I save the conversation|"
     "Can I save this chat to a file|Which command stores the conversation|"
     "Tell me how to keep a copy of our chat|I want to export this chat|save chat command|"
     "Is it possible to save what we said|In what format is a conversation saved|"
     "I'd like to know how to write the chat to disk|Saving a conversation, how is it done|"
     "Show me how to export our talk as JSON|Does /save keep the conversation|"
     "If I want to keep this dialogue, what do I type|Give me the command for saving|"
     "I need a log of this chat in a file|Will my conversation be kept in a file"},
    {"forgetting", "Type /reset: it forgets the conversation and keeps your instructions.",
     "forgetting the conversation|the /reset command|a fresh start|starting over",
     "How do I start over|How do I reset the chat|How can I make you forget this|What does /reset do|"
     "How do I clear the conversation|How do I begin a new conversation|Can you forget what I said|"
     "Is there a way to reset the conversation|Give me the command that resets the chat|"
     "Which command resets the chat|Tell me how to start over|I want to wipe the conversation|reset command|"
     "Is there a way to clear the history|Forget everything we talked about, how do I do that|"
     "I'd like to begin again with an empty conversation|Clearing the history, how is it done|"
     "Show me how to erase your memory|Does /reset delete my instructions|"
     "If I want a fresh start, what do I type|Give me the command for forgetting|"
     "I need you to drop the earlier messages"},
};

constexpr Topic kCourtesies[] = {
    {"a greeting", "Hello! Ask me a sum, a word puzzle, or something about Braid.", "",
     "Hello|Hi|Hey|Hello!|Hi!|Hey there|Good morning|Good evening|Good day|hello|hi|hi there|Hello there!|"
     "Greetings|Hello Tiny|Hi Tiny!|Hey Tiny|How are you?|Nice to meet you|hey|Good afternoon|"
     "Hello, how are you?|yo|Hiya|Hey there!|good evening.|Good afternoon!|hiya|Hello there."},
    {"thanks", "You are welcome.", "",
     "Thanks|Thank you|Thank you!|thanks|Thanks a lot|Many thanks|Thank you very much|Great, thanks|thx|Thanks!|"
     "That helped, thank you|Perfect, thanks|Well done|Good job|Great|Nice|Cool|thank you|Thank you very much!|"
     "thanks a lot|Cheers, that helped.|Many thanks!|Great, thank you.|That was helpful, thanks!|I appreciate it|"
     "Thank you, Tiny!|ok thanks"},
    {"a farewell", "Goodbye!", "",
     "Bye|Goodbye|Bye!|See you|See you later|Good night|bye|Goodbye Tiny|Farewell|Until tomorrow|Goodbye!|"
     "see you|See you later!|bye bye|Good night.|I have to go now, bye|Take care!|"
     "That is all for today, goodbye.|so long|Until next time!"},
};

}  // namespace

std::span<const Topic> topics() { return kTopics; }
std::span<const Topic> courtesies() { return kCourtesies; }

}  // namespace braid::synth
