#include "data/synth/topics.h"

namespace braid::synth {
namespace {

constexpr Topic kTopics[] = {
    {"what Braid is", "Braid is one C++ program that trains, compresses and runs hybrid language models.",
     "Braid|the Braid program|the Braid engine|the Braid project",
     "What is Braid|What does Braid do|What is Braid for|What is Braid good for|Why would I use Braid|What kind of "
     "program "
     "is Braid|What is the purpose of Braid|Who is Braid made for"},
    {"who I am", "I am Tiny, the small language model that ships with Braid.", "yourself|your name|you",
     "Who are you|What are you|What is your name|How are you called|Are you a person|Are you human|Are you a robot|Are "
     "you an AI|Are you a language model|Which model are you|What model am I talking to|Who am I talking to"},
    {"what I can do", "I do small sums with my steps shown, play with words, and answer questions about Braid.",
     "your skills|your abilities|the things you can do|your talents",
     "What can you do|What are you able to do|What can I ask you|What do you know|What are you good at|How can you "
     "help "
     "me|Can you help me|What should I ask you|What are your skills|What tasks do you do"},
    {"the licence", "Braid is free software under the Apache License 2.0.",
     "the licence of Braid|Braid's license|the license|the legal terms of Braid|copyright in Braid",
     "Which licence does Braid have|What license is Braid under|Is Braid open source|Is Braid free|Can I use Braid at "
     "work|May I use Braid in a product|How is Braid licensed|Under which license is Braid released|Does Braid cost "
     "money|Is Braid free software|May I copy the code of Braid|Can I sell what I build with Braid"},
    {"the language", "Braid is written in C++20.",
     "the language of Braid's code|the programming language of Braid|the source language of Braid",
     "What language is Braid written in|Which programming language does Braid use|Is Braid written in C++|Is Braid "
     "written in Rust|In which language is Braid programmed|What is Braid coded in|Which C++ standard does Braid "
     "use|Is "
     "the code of Braid C++"},
    {"Python", "Braid has no Python in it and needs none to run.",
     "Python in Braid|the use of Python in Braid|the Python dependency",
     "Does Braid need Python|Is there Python in Braid|Do I have to install Python for Braid|Does Braid use "
     "PyTorch|Is PyTorch needed for Braid|Do I need pip for Braid|Is Braid a Python package|Does Braid depend on "
     "Python"},
    {"the platform", "Braid runs on Linux on x86-64 machines, WSL2 included.",
     "the platforms of Braid|the operating system for Braid|the system requirements of Braid",
     "Where does Braid run|Which operating system does Braid need|Does Braid run on Windows|Does Braid run on "
     "Linux|Does Braid run on a Mac|Which platforms does Braid support|Can I run Braid on Debian|Can I run Braid on my "
     "laptop|What machine do I need for Braid|Does Braid work under WSL"},
    {"the GPU", "Braid needs no GPU: an ordinary CPU is enough.",
     "graphics cards in Braid|GPU use in Braid|the need of a GPU",
     "Does Braid need a GPU|Do I need a graphics card for Braid|Is a GPU required|Can Braid run without a GPU|Must I "
     "have CUDA for Braid|Do I have to buy a GPU|Is an NVIDIA card needed to run Braid|Does Braid need special "
     "hardware"},
    {"installing", "Type ./run chat: it installs what is missing on Debian 12, builds Braid and starts.",
     "the installation of Braid|building Braid|the setup of Braid|installing Braid",
     "How do I install Braid|How do I build Braid|How can I set up Braid|How do I get Braid to run|How do I compile "
     "Braid|What do I type to install Braid|How is Braid installed|What must I do to build Braid"},
    {"starting a chat", "Type ./run chat in the folder of Braid.",
     "starting a chat|the chat command|opening a conversation with a model",
     "How do I start a chat|How do I talk to a model|How do I chat with you|Which command starts a chat|How can I open "
     "a chat|How do I begin a conversation with a model|What is the chat command"},
    {"leaving the chat", "Press Ctrl-D, or type /exit.", "leaving the chat|ending the chat|the way out of the chat",
     "How do I leave the chat|How do I quit|How do I exit|How can I stop this chat|How do I end the chat|How do I "
     "close "
     "the chat|What do I type to leave|How do I get out of here"},
    {"the models", "Braid reads Nemotron-H, Nemotron 3, Llama-Nemotron, Llama and Qwen3 models.",
     "the models that Braid supports|supported models|the model families of Braid",
     "Which models does Braid support|What models can Braid run|Does Braid run Llama|Can Braid load Qwen|Which model "
     "families does Braid know|Does Braid support Nemotron|Which models work with Braid|What models can I use with "
     "Braid|Can I load a Llama model"},
    {"the letter M", "M stands for a Mamba-2 layer.", "the letter M|the M in the pattern|the M layers",
     "What does M mean|What does the letter M stand for|What is an M layer|What does the M in a pattern mean|Which "
     "layer "
     "is written M"},
    {"the star", "The star stands for an attention layer.", "the star in the pattern|the asterisk|the star layers",
     "What does the star mean|What does * mean|What does the star stand for|What is the star in a pattern|Which layer "
     "is "
     "written as a star|What does the asterisk mean"},
    {"the letter E", "E stands for a layer of experts.", "the letter E|the E in the pattern|the E layers",
     "What does E mean|What does the letter E stand for|What is an E layer|What does the E in a pattern mean|Which "
     "layer "
     "is written E"},
    {"the name", "Three strands are braided through every model: Mamba, attention and experts.",
     "the name Braid|the name of the project|the three strands",
     "Why is it called Braid|Where does the name Braid come from|What does the name Braid mean|Why the name Braid|Why "
     "is "
     "the project named Braid|What are the three strands|Which strands are braided|How did Braid get its name"},
    {"hybrids", "A hybrid mixes Mamba layers with attention and expert layers.",
     "hybrids|hybrid models|a hybrid model|the hybrid architecture",
     "What is a hybrid model|What is a hybrid|What makes a model a hybrid|Why is it called a hybrid|What does hybrid "
     "mean|How does a hybrid model look|What is inside a hybrid"},
    {"Mamba", "Mamba-2 is a layer with a state that stays the same size, however long the text is.",
     "Mamba|Mamba-2|the Mamba layer|Mamba layers|state space models|the state of Mamba",
     "What is Mamba|What is Mamba-2|How does Mamba work|What does a Mamba layer do|Why use Mamba|What is a state space "
     "model|What is special about Mamba|How large is the state of Mamba"},
    {"attention", "Attention lets every token look back at all the tokens before it.",
     "attention|the attention layer|attention layers|self-attention",
     "What is attention|How does attention work|What does an attention layer do|What is attention for|Why do models "
     "need "
     "attention|What is self-attention|What does attention look at"},
    {"experts", "A mixture of experts sends each token to a few small networks out of many.",
     "experts|a mixture of experts|the expert layer|MoE|expert layers",
     "What is a mixture of experts|What is an expert|What do the experts do|What does MoE mean|How do experts "
     "work|What is "
     "an MoE|Why use experts|What is an expert layer"},
    {"the router", "The router picks the experts that each token visits.", "the router|routing|the routing of tokens",
     "What does the router do|What is the router|How are experts chosen|Who picks the experts|What is routing|How does "
     "the router work|What is a router for|How does a token find its experts"},
    {"latent experts", "Latent experts work in a narrower space, so that more of them cost the same.",
     "latent experts|the latent space of experts|LatentMoE",
     "What are latent experts|What is a latent expert|Why are experts latent|What does latent mean|How do latent "
     "experts "
     "work|What is the latent width for"},
    {"multi-token prediction", "Multi-token prediction is an extra head that guesses the token after the next one.",
     "multi-token prediction|the MTP head|MTP",
     "What is multi-token prediction|What does MTP mean|What is the MTP head|What is MTP for|What does the MTP head "
     "do|Why predict more than one token"},
    {"training", "Write a recipe and type braid train RECIPE.toml.",
     "training a model with Braid|the train command|the training of a model",
     "How do I train a model|Can Braid train models|How does training work in Braid|Which command trains a model|How "
     "do I "
     "start training|Can I train my own model with Braid|How can I train with Braid|How do I run a training"},
    {"recipes", "A recipe is a TOML file that names the model, the data, the optimiser and the schedule.",
     "recipes|a recipe|the recipe file|a training recipe",
     "What is a recipe|What is in a recipe|What does a recipe look like|Which format has a recipe|What is a recipe "
     "file|What do I write in a recipe|What is a recipe for|What belongs in a recipe"},
    {"optimisers", "Braid trains with AdamW or with Muon.",
     "the optimisers of Braid|optimizers|the optimizer|AdamW|Muon",
     "Which optimisers does Braid have|Which optimizer does Braid use|Does Braid support AdamW|Does Braid have "
     "Muon|What "
     "optimizers can I choose|Is there Muon in Braid|Which optimizer can I train with"},
    {"fine-tuning", "Braid fine-tunes whole models, or small LoRA adapters beside them.",
     "fine-tuning|LoRA|LoRA adapters|adapters|tuning a model",
     "Can Braid fine-tune a model|Does Braid support LoRA|Can I fine-tune with Braid|Are there LoRA adapters in "
     "Braid|Does "
     "Braid do fine-tuning|Can I adapt a model to my data|Can I train an adapter"},
    {"resuming", "Training goes on from its last checkpoint, bit for bit.",
     "resuming a training|checkpoints|resume|the checkpoint of a training",
     "Can training be resumed|Can I resume a training|What happens when training is killed|Does Braid save "
     "checkpoints|Can I continue a stopped training|Does Braid go on after a crash|Is a checkpoint written|Can I stop "
     "training and continue later"},
    {"my training", "I was trained from nothing by Braid's own trainer, on two CPU cores in less than 45 minutes.",
     "your training|the way you were trained|your creation|your origin",
     "How were you trained|Who made you|Who trained you|Where do you come from|How long did your training take|Who "
     "created you|On what hardware were you trained|How were you made|Who built you|When were you trained"},
    {"my size", "I have a few million parameters, and my folder is smaller than 12 MB.",
     "your size|the number of your parameters|your weights|your parameter count",
     "How big are you|How large are you|How many parameters do you have|How many weights do you have|What is your "
     "size|How small are you|How much memory do you take|How many megabytes are you"},
    {"my data", "I learned from text that braid data synth writes: sums, words and questions about Braid.",
     "your training data|the text you learned from|the data you were trained on",
     "What data were you trained on|What did you learn from|Which text have you read|What is your training data|Where "
     "does "
     "your training data come from|Were you trained on the internet|Have you read the web|Which data did you see"},
    {"thinking", "I write my steps down before I answer, and that makes my answers better.",
     "your thinking|your reasoning|the thinking steps|the think tags",
     "How do you think|What is thinking|Why do you think before you answer|What are the steps you write|What is the "
     "think "
     "tag|What is reasoning|Why do you write steps|Does thinking help|What does thinking do"},
    {"the switch for thinking", "Type /think off and I answer at once; /think on brings the steps back.",
     "the thinking switch|turning thinking off|answers without thinking|the /think command",
     "How do I turn thinking off|Can you answer without thinking|How do I stop the thinking|How do I switch reasoning "
     "off|How do I disable thinking|How do I turn thinking on|What does /think do|Can I hide the thinking"},
    {"files", "Braid reads and writes safetensors folders, as Hugging Face keeps them.",
     "the file formats of Braid|safetensors|the format of the weights|model folders",
     "Which file formats does Braid read|Can Braid read safetensors|Does Braid read Hugging Face models|How are models "
     "stored|In which format are weights saved|Can transformers load what Braid writes|What format do model files "
     "have|Does Braid work with Hugging Face"},
    {"number formats", "Braid computes in BF16 and FP32, and also reads FP8 and NVFP4 weights.",
     "number formats|the precision of Braid|the number types of Braid|quantised weights|data types in Braid",
     "Which number formats does Braid use|What precision does Braid have|Does Braid support BF16|Can Braid read "
     "FP8|Does Braid know NVFP4|Which data types are there|Which dtypes does Braid support|Can Braid run quantised "
     "models"},
    {"eval", "braid eval prints perplexity, or the accuracy on a file of tasks.",
     "the eval command|evaluation in Braid|testing a model|the accuracy of a model",
     "How do I test a model|How do I measure perplexity|What does braid eval do|How do I measure accuracy|How can I "
     "evaluate a model|How good is my model|How do I score a model|Which command prints perplexity"},
    {"bench", "braid bench measures prompt and answer speed beside what the machine allows.",
     "the bench command|measuring speed|benchmarks in Braid|the speed of a model",
     "How do I measure speed|What does braid bench do|How fast is a model|How do I benchmark a model|Which command "
     "measures "
     "speed|How many tokens a second do I get|How do I time a model|How can I run a benchmark"},
    {"the tokenizer", "A tokenizer cuts text into pieces, and a model reads the numbers of these pieces.",
     "the tokenizer|tokenizers|tokens|the vocabulary of a model",
     "What is a tokenizer|What is a token|How is text cut into tokens|What does a tokenizer do|What are tokens|How "
     "does a "
     "model read text|What is a vocabulary"},
    {"mistakes", "I am very small and can be wrong, so check what matters.",
     "your mistakes|your errors|your limits|trusting you",
     "Do you make mistakes|Can you be wrong|Are you always right|Can I trust you|Are your answers correct|Do you ever "
     "fail|Should I check your answers|Are you reliable|How sure are you"},
    {"privacy", "Everything stays on your own machine: nothing is sent anywhere.",
     "privacy|my data in Braid|the network use of Braid|internet access",
     "Does Braid send my data away|Do you need the internet|Are you online|Does Braid use the network|Is my chat sent "
     "to a "
     "server|Can others read my messages|Do you store what I say|Does Braid collect data|Does Braid phone home"},
    {"Nemotron", "Nemotron is NVIDIA's family of open language models.",
     "Nemotron|the Nemotron models|the Nemotron line|Nemotron 3|Nemotron-H",
     "What is Nemotron|Who makes Nemotron|What is Nemotron 3|What are the Nemotron models|What does Nemotron "
     "mean|Where do "
     "the Nemotron models come from|Which company makes Nemotron"},
    {"contributing", "Read CONTRIBUTING.md: it tells the habits, and how to add a part.",
     "contributing to Braid|working on Braid|adding code to Braid|helping the project",
     "How can I contribute|How do I contribute to Braid|How do I add a model family|How do I add an op|How can I help "
     "the "
     "project|Where do I begin as a developer|How do I send a patch|Are contributions welcome"},
    {"saving", "Type /save FILE: it writes the conversation as JSON.",
     "saving the conversation|the /save command|saving a chat",
     "How do I save this conversation|How can I save the chat|How do I keep our conversation|What does /save do|Can I "
     "store "
     "this chat in a file|How do I write the chat to a file"},
    {"forgetting", "Type /reset: it forgets the conversation and keeps your instructions.",
     "forgetting the conversation|the /reset command|a fresh start|starting over",
     "How do I start over|How do I reset the chat|How can I make you forget this|What does /reset do|How do I clear "
     "the "
     "conversation|How do I begin a new conversation|Can you forget what I said"},
};

constexpr Topic kCourtesies[] = {
    {"a greeting", "Hello! Ask me a sum, a word puzzle, or something about Braid.", "",
     "Hello|Hi|Hey|Hello!|Hi!|Hey there|Good morning|Good evening|Good day|hello|hi|hi there|Hello "
     "there!|Greetings|Hello "
     "Tiny|Hi Tiny!|Hey Tiny|How are you?|Nice to meet you|hey|Good afternoon|Hello, how are you?|yo|Hiya"},
    {"thanks", "You are welcome.", "",
     "Thanks|Thank you|Thank you!|thanks|Thanks a lot|Many thanks|Thank you very much|Great, thanks|thx|Thanks!|That "
     "helped, thank you|Perfect, thanks|Well done|Good job|Great|Nice|Cool"},
    {"a farewell", "Goodbye!", "",
     "Bye|Goodbye|Bye!|See you|See you later|Good night|bye|Goodbye Tiny|Farewell|Until tomorrow"},
};

}  // namespace

std::span<const Topic> topics() { return kTopics; }
std::span<const Topic> courtesies() { return kCourtesies; }

}  // namespace braid::synth
