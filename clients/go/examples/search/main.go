// Stores two texts and searches them, over gRPC:
//
//	go run ./examples/search 127.0.0.1:7400
//
// TANDEM_TOKEN is the token of a server that asks for one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/local"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tandemv1 "tandem-search-client/gen/tandem/v1"
)

const indexID = "cups"

func main() {
	log.SetFlags(0)
	address := "127.0.0.1:7400"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if err := run(address); err != nil {
		log.Fatal(err)
	}
}

func run(address string) error {
	// For a server of this machine. Any other needs TLS: credentials.NewTLS(&tls.Config{}).
	connection, err := grpc.Dial(address, grpc.WithTransportCredentials(local.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := tandemv1.NewSearchServiceClient(connection)

	ctx := context.Background()
	if token := os.Getenv("TANDEM_TOKEN"); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	// An ingest lasts as long as its items do: it has no deadline.
	consistencyToken, err := store(ctx, client)
	if err != nil {
		return err
	}

	// The searches have thirty seconds together.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	query := &tandemv1.SearchItemsRequest{
		IndexId:           indexID,
		Query:             text("a red cup"),
		TargetModality:    tandemv1.Modality_MODALITY_TEXT,
		ConsistencyTokens: []string{consistencyToken},
	}
	if err := search(ctx, client, query); err != nil {
		return err
	}
	if err := streamSearch(ctx, client, query); err != nil {
		return err
	}
	return readReason(ctx, client)
}

// store streams one batch of items and returns the token by which a search waits for them.
func store(ctx context.Context, client tandemv1.SearchServiceClient) (string, error) {
	stream, err := client.IngestItems(ctx)
	if err != nil {
		return "", err
	}
	batch := &tandemv1.IngestItemsRequest{IndexId: indexID, Items: []*tandemv1.Item{
		{ItemId: "cup-1", Content: text("a red cup")},
		{ItemId: "cup-2", Content: text("a blue cup on a table")},
	}}
	// Where Send fails with io.EOF, Recv has the server's error.
	if err := stream.Send(batch); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	token := ""
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return token, nil
		}
		if err != nil {
			return "", err
		}
		token = answer.GetConsistencyToken()
		for _, result := range answer.GetResults() {
			fmt.Println("stored", result.GetItemId(), result.GetError().GetMessage())
		}
	}
}

func search(ctx context.Context, client tandemv1.SearchServiceClient, query *tandemv1.SearchItemsRequest) error {
	answer, err := client.SearchItems(ctx, query)
	if err != nil {
		return err
	}
	for _, item := range answer.GetItems() {
		fmt.Printf("%d %s %.3f\n", item.GetFinalRank(), item.GetItemId(), item.GetSimilarity())
	}
	return nil
}

// streamSearch reads two answers: in the bi-encoder's order, and in the final one.
func streamSearch(ctx context.Context, client tandemv1.SearchServiceClient, query *tandemv1.SearchItemsRequest) error {
	stream, err := client.StreamSearchItems(ctx, &tandemv1.StreamSearchItemsRequest{Search: query})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println(response.GetPhase(), len(response.GetAnswer().GetItems()))
	}
}

// readReason makes an error, which has gRPC's code and, in the trailing metadata, Tandem's reason.
func readReason(ctx context.Context, client tandemv1.SearchServiceClient) error {
	var trailer metadata.MD
	missing := &tandemv1.SearchItemsRequest{IndexId: "none", Query: text("a cup")}
	_, err := client.SearchItems(ctx, missing, grpc.Trailer(&trailer))
	if err == nil {
		return errors.New("there is an index with the name none")
	}
	reasons := trailer.Get("tandem-reason")
	if len(reasons) == 0 {
		return err
	}
	fmt.Println(status.Code(err), reasons[0])
	return nil
}

func text(value string) *tandemv1.Content {
	return &tandemv1.Content{Data: &tandemv1.Content_Text{Text: value}}
}
